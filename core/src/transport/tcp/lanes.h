// The two lanes to a peer (transport.h). PeerLane is their common base.
//
//   OrderedLane   the next message belongs to the first posted receive, or it waits in the kernel
//   EarlyLane     a message belongs to the receive of its tag and part; if that is not posted yet:
//
//       on credit         payload -> kept in memory ------------- receive posted: copied
//       beyond it         announced, kept by the sender --------- receive posted: grant -> payload
//
// Credit of the early lane. A sender may have sent at most credit_bytes that its peer has not taken: received into
// posted memory, copied from kept memory, or dropped. Every header says how much its sender has taken. If half of the
// credit was taken since the last one, a header goes by itself. Announced payloads need no credit, since they are sent
// to posted memory.
//
// Invariants:
// 1. A post's memory is touched only between the post and its completion, or the Cancel or BeginQuiesce that ends it.
// 2. Kept payloads of all lanes take at most Transport::kEarlyBytes; a peer that sends more is an error.
// 3. On the early lane every header is read, so an announcement or a grant never waits behind a payload that nobody
//    takes.
//
// The transport owns the lanes, and calls them with the ProgressLock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transport/frame_stream.h"
#include "transport/transport.h"

namespace farandole {

// What the lanes of a transport share.
struct LaneContext {
  MessageSink* sink = nullptr;
  size_t credit_bytes = 0;              // the most that a peer may have sent and we have not taken; equal on both ends
  std::map<int32_t, MessageTag> begun;  // the last operation of each process set on this rank
};

// A send or a receive of this rank.
struct Post {
  Message message;
  std::byte* data;
  uint64_t context;
};

class PeerLane : public FrameStream {
 public:
  PeerLane(PeerConnection connection, LaneContext* shared)
      : FrameStream(std::move(connection.socket), std::move(connection.name), connection.lane == Lane::kEarly),
        peer_(connection.peer),
        lane_(connection.lane),
        shared_(shared) {}

  virtual void PostSend(const Post& post) = 0;
  virtual void PostReceive(const Post& post) = 0;
  // See Transport::Poll. asks: try the socket even if the poller has reported nothing.
  bool Poll(bool asks, std::vector<Transport::Completion>* completions);
  virtual void Quiesce() = 0;

  virtual bool awaits() const = 0;
  // A long message takes several calls, and the poller does not report the rest of it again.
  bool has_more() const { return open() && may_read() && !waits(); }

  bool is_active = false;  // kept by the transport

 protected:
  // Sending has failed. Returns the status with which the lane goes on.
  virtual Status OnSendLost(const Status& status) { return status; }
  // Adds to done_ what has ended otherwise than by Flush and OnMessage.
  virtual void EndPosts(bool* moved) = 0;
  // Tells the sink that the two ranks do not run the operation in the same way. Returns the error for the stream.
  Status ReportMismatch(const Message& theirs, const Message& ours);
  Status Malformed() const { return {Code::kMismatch, "rank ", peer_, " sent an invalid message"}; }

  const int peer_;
  const Lane lane_;
  LaneContext* const shared_;
  std::vector<Transport::Completion> done_;  // empty between polls; kept for its memory
  Status failed_;                            // final
};

class OrderedLane final : public PeerLane {
 public:
  using PeerLane::PeerLane;

  void PostSend(const Post& post) override;
  void PostReceive(const Post& post) override { receives_.push_back(post); }
  // A waiting message may turn out to follow another plan.
  void OnBegin();
  void Quiesce() override;
  bool awaits() const override { return !receives_.empty(); }

 private:
  iovec Expected() override;
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override;
  Status OnMessage(const FrameHeader& header) override;
  void EndPosts(bool* moved) override;
  void CheckPlan(const Message& message);

  std::deque<Post> receives_;  // after an error also sends, until they end with it
  bool is_reported_ = false;   // the sink knows why the lane has failed
};

class EarlyLane final : public PeerLane {
 public:
  using PeerLane::PeerLane;

  void PostSend(const Post& post) override;
  void PostReceive(const Post& post) override;
  void PostGoodbye(int left);
  void Cancel(const MessageTag& operation);
  void Drop(uint32_t serial);
  bool HasHeader(const MessageTag& operation) const;
  void Quiesce() override;
  bool awaits() const override { return !receives_.empty() && open(); }

 private:
  // A message of the peer. Until its receive is posted, it has no data and no context.
  struct Incoming : Post {
    bool heard = false;                   // its header has arrived
    std::unique_ptr<std::byte[]> kept{};  // its payload, if that came before the receive was posted
    bool complete = false;                // the payload has arrived
  };

  iovec Expected() override;
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override;
  Status OnMessage(const FrameHeader& header) override;
  Status OnSendLost(const Status& status) override;
  void EndPosts(bool* moved) override;

  void QueueFrame(FrameKind kind, const Message& message, const void* payload = nullptr, uint64_t context = kNoContext);
  void SendGranted(const Message& message);
  Status Keep(const FrameHeader& header, std::byte** to);
  void Take(uint64_t size_bytes);
  void ReleaseKept(const Incoming& incoming);
  void DropSends();
  template <typename IsMeant>
  void DropIncoming(std::vector<Incoming>* from, IsMeant is_meant);

  std::vector<Incoming> receives_;  // their receives are posted
  std::vector<Incoming> kept_;      // the others: on credit, or announced
  std::vector<Post> announced_;     // sends beyond the credit, until they are granted
  bool has_complete_ = false;       // among receives_

  uint64_t sent_bytes_ = 0, peer_took_bytes_ = 0;  // on credit
  uint64_t taken_bytes_ = 0, reported_bytes_ = 0;  // of the peer's, and what it knows of that
  size_t kept_bytes_ = 0;
};

}  // namespace farandole
