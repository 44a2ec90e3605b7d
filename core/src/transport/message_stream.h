// Control messages over a connected, non-blocking socket: small, in order, copied in and out.
//
// Sending and receiving never block; the stream keeps what does not fit into the socket. The World owns the streams.
// One thread at a time uses them: the one that drives the progress loop.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "common/descriptor.h"
#include "common/status.h"
#include "transport/frame_stream.h"

namespace farandole {

inline constexpr uint32_t kMessageLimitBytes = 64u << 20;  // a peer that sends more is not one of us

class MessageStream final : public FrameStream {
 public:
  explicit MessageStream(Descriptor socket = Descriptor())
      : FrameStream(std::move(socket), "the other end of a control connection", /*reads_ahead=*/true) {}

  void Queue(const Bytes& message);  // REQUIRES: not empty
  // Sends as much as the socket takes. An error is final; the peer sees the end of the stream.
  Status Flush();
  // Appends the complete messages that have arrived. kPeerLost at the end of the stream.
  Status Receive(std::vector<Bytes>* messages);
  // The next Receive returns these messages first. Poll does not tell that they are there.
  void PutBack(std::vector<Bytes> messages) { arrived_ = std::move(messages); }

  // Ends our direction if all queued messages could be sent.
  void EndSending();
  // Sends what is queued and ends our direction, then reads and drops all messages until the peer ends its direction or
  // the time is up. Closing with unread data would reset the connection, and the peer would lose our last messages.
  void CloseAfterDrain(int64_t timeout_ms);

 private:
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override;
  Status OnMessage(const FrameHeader& header) override;

  Bytes incoming_;
  std::vector<Bytes> arrived_;
};

// As CloseAfterDrain for each stream, with one time for all of them.
void CloseAll(std::vector<MessageStream>* streams, int64_t timeout_ms);

}  // namespace farandole
