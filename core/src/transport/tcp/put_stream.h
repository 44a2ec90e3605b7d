// Data that one rank puts to operations of another, over a connected, non-blocking socket. A head of fixed size
// describes the data behind it. The data move directly between the memory of the two operations.
//
//   | head, kPutHeadBytes | data | head | data | ...      the layer above decides what a head means
//
// No call blocks. Data that are queued by reference are not copied, so they must stay unchanged until sent_bytes() has
// passed them.
//
// The World owns the streams, one per other rank. One thread at a time uses them: the one that drives the progress
// loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "common/bytes.h"
#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

inline constexpr size_t kPutHeadBytes = 64;
using PutHead = std::array<uint8_t, kPutHeadBytes>;

class PutStream {
 public:
  struct Slice {
    std::byte* data = nullptr;
    size_t size_bytes = 0;
  };
  // The layer above implements it, since that layer knows where data belong.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // Memory that may receive the next data in the same system call as their head. If OnHead then names this memory,
    // the data are not copied. In any case the memory is overwritten.
    virtual Slice Expected() = 0;
    // Says where the `*size_bytes` bytes behind the head go; null: they are dropped. Receive returns its error.
    virtual Status OnHead(const PutHead& head, std::byte** to, size_t* size_bytes) = 0;
    // `size_bytes` more bytes of the data have arrived.
    virtual void OnData(size_t size_bytes) = 0;
  };

  PutStream() = default;
  // Switches off Nagle's delay.
  explicit PutStream(Descriptor socket);

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
  Status Receive(Receiver* receiver, bool* moved);
  void EndSending();

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
  Status Read(Receiver* receiver, size_t* moved_bytes, size_t* wanted_bytes);
  // Moves each byte to where it belongs, unless it lies there already.
  Status Distribute(Receiver* receiver, const std::byte* from, size_t size_bytes);
  // Called when `size_bytes` more bytes of the head or of the data are in their place.
  Status Advance(Receiver* receiver, size_t size_bytes);

  Descriptor socket_;
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
