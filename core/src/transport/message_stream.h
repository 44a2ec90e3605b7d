// Control messages over a connected, non-blocking socket: small, framed, in order.
//
//   | length, uint32 little-endian | length bytes |      length <= kMessageLimitBytes, else the peer is not one of us
//
// Sending and receiving never block: what does not fit into the socket waits here. The World owns the streams; one
// thread at a time uses them, the one that drives the progress loop.
#pragma once

#include <cstdint>
#include <vector>

#include "common/bytes.h"
#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

inline constexpr uint32_t kMessageLimitBytes = 64u << 20;

class MessageStream {
 public:
  MessageStream() = default;
  explicit MessageStream(Descriptor socket) : socket_(std::move(socket)) {}

  bool open() const { return socket_.valid(); }
  const Descriptor& socket() const { return socket_; }
  int descriptor() const { return socket_.get(); }

  void Queue(const Bytes& message);
  // Sends what the socket takes. An error is final; the peer learns of it by the end of the stream.
  Status Flush();
  // After an error of Flush: drops what is queued, now and later. What the peer sent before can still be received.
  void StopSending();
  bool flushed() const { return unsent_bytes() == 0; }
  size_t unsent_bytes() const { return outgoing_.size() - sent_; }
  // Appends the complete messages that have come. kPeerLost at the end of the stream.
  Status Receive(std::vector<Bytes>* messages);

  // One message at most, and not a byte of the next leaves the socket. Its next reader may be another object, which
  // learns from poll that there is more.
  Status ReceiveOne(std::vector<Bytes>* messages);

  // Ends our direction, if everything queued could be sent.
  void EndSending();
  // Ends our direction after what is queued, then reads and drops what still comes until the peer ends its own or the
  // time is up. Closing with unread data would reset the connection, and the peer would lose our last messages.
  void CloseGently(int timeout_ms);

 private:
  // Moves the complete messages out of incoming_.
  Status Take(std::vector<Bytes>* messages);
  // How many bytes the first message in incoming_ lacks; 0 for one that is too long, which Take refuses.
  size_t NeededBytes() const;

  Descriptor socket_;
  Bytes outgoing_;
  size_t sent_ = 0;
  bool is_sending_ = true;
  Bytes incoming_;
};

}  // namespace farandole
