// Exchanges control messages over a connected, non-blocking socket: small, in order, copied in and out.
//
// Sending and receiving never block; the stream keeps what does not fit into the socket. The World owns the streams.
// The thread that drives the progress loop uses them, one thread at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/descriptor.h"
#include "common/status.h"
#include "transport/frame_stream.h"

namespace farandole {

inline constexpr uint32_t kMessageLimitBytes = 64u << 20;  // a peer that sends more is not a rank

class MessageStream final : public FrameStream {
 public:
  explicit MessageStream(Descriptor socket = Descriptor())
      : FrameStream(std::move(socket), "the other end of a control connection", /*reads_ahead=*/true) {}

  void Queue(const Bytes& message);  // REQUIRES: not empty
  // Sends as much as the socket accepts. An error is final; the peer sees the end of the stream.
  Status Flush();
  // Appends the complete messages that have arrived. Returns kPeerLost at the end of the stream.
  Status Receive(std::vector<Bytes>* messages);
  // Makes the next Receive return these messages first. Poll does not report them.
  void PutBack(std::vector<Bytes> messages) { arrived_ = std::move(messages); }

  // Ends the sending direction if all queued messages could be sent.
  void EndSending();
  // Sends the queue and ends the sending direction, then reads and discards all messages until the peer ends its
  // direction or the time is up. Closing with unread data would reset the connection, and the peer would lose our last
  // messages.
  void CloseAfterDrain(int64_t timeout_ms);

 private:
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override;
  Status OnMessage(const FrameHeader& header) override;

  Bytes incoming_;
  std::vector<Bytes> arrived_;
};

// Calls CloseAfterDrain for each stream, with one timeout for all of them.
void CloseAll(std::vector<MessageStream>* streams, int64_t timeout_ms);

}  // namespace farandole
