// A connection to another rank for messages. Both ranks send on it, each with its own credit:
//
//   a small payload, on credit   DATA ----------> the memory of its receive, or kept until that is posted
//   no payload, on credit        ANNOUNCED, with part kOnCredit: likewise
//   any other payload            ANNOUNCED -----> noted
//                                <-------- GRANT  its receive is posted; or the message is not wanted
//                                GRANTED -------> the memory of its receive
//   an announced send given up   WITHDRAWN -----> its receive fails
//
// Frames are those of transport/frame_stream.h. Of their tags: id, operation and plan are the context, the tag and the
// element type of a message; serial is the number of the send on this link.
//
// Invariants:
// 1. A transfer's memory is touched only while it is under way on one link, and not after Cancel, End or its end.
// 2. What this rank keeps of a peer's messages costs at most credit_bytes for each link. A peer that sends more is an
//    error.
// 3. Every frame is read at once, so a grant never waits behind a payload that nobody takes.
//
// Thread rule: the lock of the Messenger, which owns the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "p2p/matcher.h"
#include "transport/frame_stream.h"

namespace farandole {

// What the links of a Messenger share.
struct LinkContext {
  int rank = 0;
  size_t credit_bytes = 0;  // equal on all ranks
  Matcher matcher;
  uint64_t ended = 0;  // transfers

  void Complete(const TransferPtr& transfer, Status status);
  // Ends a transfer with an error that says which one it is.
  void Fail(const TransferPtr& transfer, const Status& reason);
  // Returns whether the message fits the receive; else the receive ends with an error.
  bool Fits(const TransferPtr& receive, int source, DType dtype, size_t size_bytes);
};

class Link final : public FrameStream {
 public:
  static constexpr size_t kEagerBytes = 64 << 10;  // the largest payload that is sent on credit
  static constexpr size_t kKeepBytes = 256;        // what a message costs besides its payload
  static size_t CostOf(size_t payload_bytes) { return payload_bytes + kKeepBytes; }

  Link(int peer, Descriptor socket, std::string name, LinkContext* context)
      : FrameStream(std::move(socket), std::move(name), /*reads_ahead=*/true), peer_(peer), context_(*context) {}

  void Send(const TransferPtr& send);
  // Takes an announced message for a receive, or refuses it if it does not fit.
  void Take(const Arrival& arrival, const TransferPtr& receive);
  // A payload that was sent on credit has been copied or dropped.
  void ReturnCredit(size_t payload_bytes);
  // No-op for a transfer that is not under way here.
  void Cancel(const TransferPtr& transfer);

  // Moves what the socket gives and takes now, up to a limit. kPeerLost: the peer has ended the connection, and
  // everything that it had sent is received.
  Status Pump();
  // Returns the transfers that were under way. The socket stays open.
  std::vector<TransferPtr> End();

 private:
  struct Sending {
    TransferPtr send;
    bool is_announced = false;  // and not granted yet
  };

  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override;
  Status OnMessage(const FrameHeader& header) override;
  Status OnData(const FrameHeader& header, std::byte** to);
  Status OnAnnounced(const FrameHeader& header, std::byte** to);
  Status OnGrant(const FrameHeader& header);
  Status OnGranted(const FrameHeader& header, std::byte** to);
  void OnWithdrawn(uint32_t serial);
  Status FlushAll();
  void QueueFrame(FrameKind kind, const MessageTag& tag, size_t size_bytes, const void* payload = nullptr,
                  uint64_t context = kNoContext, uint32_t part = 0);
  Status Malformed() const { return {Code::kMismatch, "rank ", peer_, " sent an invalid message"}; }

  const int peer_;
  LinkContext& context_;
  std::map<uint32_t, Sending> sends_;              // by serial
  std::map<uint32_t, TransferPtr> expected_;       // receives of granted messages, by serial; null: cancelled
  TransferPtr receiving_;                          // the payload that is being received goes into its memory
  ArrivalPtr arriving_;                            // likewise, or it is kept
  uint32_t last_serial_ = 0;                       // of this rank's sends
  uint32_t last_arrived_serial_ = 0;               // of the peer's
  uint64_t sent_bytes_ = 0, peer_took_bytes_ = 0;  // on credit; with what messages cost besides
  uint64_t received_bytes_ = 0, taken_bytes_ = 0, reported_bytes_ = 0;  // of the peer's, and what it knows of that
};

}  // namespace farandole
