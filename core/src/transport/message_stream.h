// Control messages over a connected, non-blocking socket: small, framed, in order.
//
//   | length, uint32 little-endian | length bytes |      length <= kMessageLimitBytes, else the peer is not one of us
//
// Neither call blocks: what does not fit into the socket waits here. One thread (the driver) at a time.
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
  // Sends what the socket takes. An error is final; closing tells the peer that nothing more comes.
  Status Flush();
  // After that: nothing is kept to be sent any more. What has come before the end can still be received.
  void StopSending();
  bool flushed() const { return unsent_bytes() == 0; }
  size_t unsent_bytes() const { return outgoing_.size() - sent_; }
  // Appends the complete messages that have come. kPeerLost at the end of the stream.
  Status Receive(std::vector<Bytes>* messages);

  // One message at most, and not a byte of the next is taken from the socket: who reads on may be somebody else, whom
  // poll has to wake.
  Status ReceiveOne(std::vector<Bytes>* messages);

  // Ends our direction, if all that was queued could be sent.
  void EndSending();
  // Ends our direction after what is queued, then reads and drops what still comes until the peer ends its own or the
  // time is up: closing with unread data would reset the connection and take our last words with it.
  void CloseGently(int timeout_ms);

 private:
  Status Take(std::vector<Bytes>* messages);

  size_t NeededBytes() const;

  Descriptor socket_;
  Bytes outgoing_;
  size_t sent_ = 0;
  bool is_sending_ = true;
  Bytes incoming_;
};

}  // namespace farandole
