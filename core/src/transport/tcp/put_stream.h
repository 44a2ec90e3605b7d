// The puts of two ranks to each other (transport.h), over a connected, non-blocking socket. The data move directly
// between the memory of the two operations.
//
//   | head, kPutHeadBytes | data | head | data | ...      the layer above decides what a head means
//
// No call blocks. Data that are queued by reference are not copied, so they must stay unchanged until sent_bytes() has
// passed them.
//
// The transport (tcp.cc) owns the streams, one per other rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "common/bytes.h"
#include "common/descriptor.h"
#include "common/status.h"
#include "transport/transport.h"

namespace farandole {

class PutStream {
 public:
  PutStream() = default;
  PutStream(Descriptor socket, int peer) : socket_(std::move(socket)), peer_(peer) {}

  bool open() const { return socket_.valid(); }
  int descriptor() const { return socket_.get(); }
  // All bytes queued so far or later count as sent.
  void Close();

  void Queue(const void* data, size_t size_bytes);  // a copy
  void QueueReference(const void* data, size_t size_bytes);
  // Counted from the beginning.
  uint64_t queued_bytes() const { return queued_bytes_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  bool flushed() const { return sent_bytes_ == queued_bytes_; }
  // Copies the data that are queued by reference, so that their memory is no longer read.
  void Detach();
  // Drops what is queued now or later; it counts as sent.
  void Drop();
  // Sends a part of what is queued, if the socket takes it. Sets *moved if bytes were sent.
  Status Flush(bool* moved);
  // Receives a part of what has arrived. kPeerLost at the end of the stream.
  Status Receive(PutSink* sink, bool* moved);

 private:
  struct Piece {
    Bytes own;                      // empty: a reference
    const uint8_t* data = nullptr;  // of a reference
    size_t size_bytes = 0;
    const uint8_t* begin() const { return own.empty() ? data : own.data(); }
  };

  // Counts bytes that are to be queued. False: there are none, or the stream drops them.
  bool Count(size_t size_bytes);
  // Receives with one system call: due and expected data directly into their memory, the rest through a buffer.
  Status Read(PutSink* sink, size_t* moved_bytes, size_t* wanted_bytes);
  // Moves each byte to where it belongs, unless it lies there already.
  Status Distribute(PutSink* sink, const std::byte* from, size_t size_bytes);
  // Called when `size_bytes` more bytes of the head or of the data are in their place.
  Status Advance(PutSink* sink, size_t size_bytes);

  Descriptor socket_;
  int peer_ = 0;
  std::deque<Piece> pieces_;
  Bytes spare_;                  // empty; the next copy uses its memory
  size_t first_sent_bytes_ = 0;  // of the first piece
  uint64_t queued_bytes_ = 0, sent_bytes_ = 0;
  bool dropped_ = false;

  // The state of receiving: a head while left_bytes_ is 0, else data.
  PutHead head_{};
  size_t head_bytes_ = 0;    // how many bytes of the head have arrived
  std::byte* to_ = nullptr;  // where the next byte of the data goes; null: it is dropped
  size_t left_bytes_ = 0;    // of the data
};

}  // namespace farandole
