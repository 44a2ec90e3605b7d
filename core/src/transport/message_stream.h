// Control messages over a connected, non-blocking socket: small, framed, in order.
//
//   | length, uint32 little-endian | length bytes |      length <= kMessageLimitBytes, else the peer is not one of us
//
// Sending and receiving never block; the stream keeps what does not fit into the socket. The World owns the streams.
// One thread at a time uses them: the one that drives the progress loop.
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
  // Sends as much as the socket takes. An error is final; the peer sees the end of the stream.
  Status Flush();
  // After an error of Flush: drops all queued messages, now and later. Messages that the peer sent before can
  // still be received.
  void StopSending();
  bool flushed() const { return unsent_bytes() == 0; }
  size_t unsent_bytes() const { return outgoing_.size() - sent_; }
  // Appends the complete messages that have arrived. kPeerLost at the end of the stream.
  Status Receive(std::vector<Bytes>* messages);

  // Appends at most one message, and leaves all bytes of the next one in the socket. Another object may read the socket
  // next, and poll must tell it that there is more.
  Status ReceiveOne(std::vector<Bytes>* messages);

  // Ends our direction if all queued messages could be sent.
  void EndSending();
  // Sends what is queued and ends our direction, then reads and drops all messages until the peer ends its direction or
  // the time is up. Closing with unread data would reset the connection, and the peer would lose our last messages.
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
