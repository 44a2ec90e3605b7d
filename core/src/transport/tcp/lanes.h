// The two lanes to a peer (transport.h), each a stream of messages.
//
//   OrderedLane   the next message belongs to the first posted receive, or it waits in the kernel
//   EarlyLane     a message belongs to the receive of its tag and part, if that is posted. Else
//
//       on credit         payload -> kept in memory ------------- receive posted: copied
//       beyond it         announced, kept by the sender --------- receive posted: grant -> payload
//
// Credit of the early lane. A sender may have sent at most credit_bytes_ that its peer has not taken: received into
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

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/frame_stream.h"
#include "transport/transport.h"

namespace farandole {

// What the lanes of a transport share.
struct LaneContext {
  MessageSink* sink = nullptr;
  std::map<int32_t, MessageTag> begun;  // the last operation of each process set on this rank
};

class OrderedLane final : private FrameSink {
 public:
  OrderedLane(int peer, Descriptor socket, std::string name, LaneContext* shared)
      : peer_(peer), stream_(std::move(socket), std::move(name), /*reads_ahead=*/false), shared_(shared) {}

  void PostSend(const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes, uint64_t context);
  void PostReceive(const MessageTag& tag, uint32_t part, void* data, size_t size_bytes, uint64_t context);
  // See Transport::Poll. After an error the first post completes with it, and the others are dropped.
  bool Flush(std::vector<Transport::Completion>* completions);
  bool Receive(std::vector<Transport::Completion>* completions);
  // A waiting message may turn out to follow another plan.
  void OnBegin();
  void Quiesce();

  bool sends() const { return !stream_.flushed(); }
  bool awaits() const { return !receives_.empty(); }
  bool has_completed() const { return !failed_.ok() && (awaits() || !lost_.empty()); }  // with the error
  FrameStream& stream() { return stream_; }
  const FrameStream& stream() const { return stream_; }

 private:
  struct Receiving {
    MessageTag tag;
    uint32_t part;
    std::byte* data;
    size_t size_bytes;
    uint64_t context;
  };

  Slice Expected() override;
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override;
  Status OnMessage(const FrameHeader& header) override;
  bool Fail(std::vector<Transport::Completion>* completions);
  void CheckPlan(const FrameHeader& header);

  const int peer_;
  FrameStream stream_;
  LaneContext* const shared_;
  std::deque<Receiving> receives_;
  std::vector<uint64_t> done_;  // contexts; empty between calls, kept for its memory
  std::vector<uint64_t> lost_;  // contexts of sends that were posted after the error
  Status failed_;               // final
  bool told_sink_ = false;      // why it failed
};

class EarlyLane final : private FrameSink {
 public:
  EarlyLane(int peer, Descriptor socket, std::string name, LaneContext* shared)
      : peer_(peer), stream_(std::move(socket), std::move(name), /*reads_ahead=*/true), shared_(shared) {}

  // A peer may have sent so many bytes that are not taken; equal on both ends.
  void SetCredit(size_t credit_bytes) { credit_bytes_ = credit_bytes; }

  void PostSend(const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes, uint64_t context);
  void PostReceive(const MessageTag& tag, uint32_t part, void* data, size_t size_bytes, uint64_t context);
  void PostGoodbye(int left);
  bool Flush(std::vector<Transport::Completion>* completions);
  bool Receive(std::vector<Transport::Completion>* completions);
  void Cancel(const MessageTag& tag);
  void Drop(uint32_t serial);
  bool HasHeard(const MessageTag& tag) const;
  void Quiesce();
  void DrainBeforeClose();

  bool sends() const { return !stream_.flushed(); }
  bool awaits() const { return !receives_.empty() && stream_.open(); }
  bool has_completed() const { return !completed_.empty(); }
  FrameStream& stream() { return stream_; }
  const FrameStream& stream() const { return stream_; }

 private:
  struct Key {
    uint32_t serial, part;
    uint64_t operation;
    bool operator==(const Key& other) const {
      return serial == other.serial && part == other.part && operation == other.operation;
    }
    bool IsOf(const MessageTag& tag) const { return serial == tag.serial && operation == tag.operation; }
  };
  static Key KeyOf(const FrameHeader& header) { return {header.serial, header.part, header.operation}; }
  static Key KeyOf(const MessageTag& tag, uint32_t part) { return {tag.serial, part, tag.operation}; }

  struct Receiving {
    Key key;
    MessageTag tag;
    std::byte* data;
    size_t size_bytes;
    uint64_t context;
    bool heard = false;  // its payload has begun to arrive, or a grant is sent
  };
  // A message without a posted receive.
  struct Kept {
    Key key;
    FrameHeader header;
    std::unique_ptr<std::byte[]> data;  // null: it is announced
    bool complete = false;
  };
  struct Announced {
    Key key;
    MessageTag tag;
    const void* data;
    size_t size_bytes;
    uint64_t context;
  };

  Slice Expected() override;
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override;
  Status OnMessage(const FrameHeader& header) override;
  Status Keep(const FrameHeader& header, std::byte** to);
  bool Agrees(const FrameHeader& header, const Receiving& receiving);

  void Queue(FrameHeader header, const void* payload = nullptr, uint64_t context = FrameStream::kNoContext);
  void SendGranted(const Key& key);
  void Take(const FrameHeader& header);
  void Complete(std::vector<Receiving>::iterator receiving);
  void TakeKept(std::vector<Kept>::iterator kept, std::vector<Receiving>::iterator receiving);
  template <typename IsMeant>
  void DropKept(IsMeant is_meant);
  void DropSends();
  void End(const Status& status, std::vector<Transport::Completion>* completions);
  template <typename Entries>
  static auto Find(Entries& entries, const Key& key) {
    return std::find_if(entries.begin(), entries.end(), [&key](const auto& each) { return each.key == key; });
  }

  const int peer_;
  FrameStream stream_;
  LaneContext* const shared_;
  size_t credit_bytes_ = Transport::kEarlyBytes;

  std::vector<Receiving> receives_;
  std::vector<Kept> kept_;
  std::vector<Announced> announced_;
  std::vector<Receiving> completed_;  // since the last Poll
  std::vector<uint64_t> sent_;        // contexts; empty between calls, kept for its memory

  uint64_t sent_bytes_ = 0, peer_took_bytes_ = 0;  // on credit
  uint64_t taken_bytes_ = 0, told_bytes_ = 0;      // of the peer's, and what it knows of that
  size_t kept_bytes_ = 0;
};

}  // namespace farandole
