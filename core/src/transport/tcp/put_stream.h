// Data that one rank puts to operations of another, over a connected, non-blocking socket. A head of fixed size says
// what follows; the data go from and to the memory where they belong.
//
//   | head, kPutHeadBytes | data | head | data | ...      the layer above decides what a head means
//
// Nothing here blocks. Data that are queued by reference are not copied: they must stay unchanged until sent_bytes()
// has passed them.
//
// The World owns the streams, one per other rank; one thread at a time uses them, the one that drives the progress
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
  // The layer above, which knows where data belong.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // Memory into which the next data may come in one system call with their head. They are not copied if OnHead then
    // says that they belong there; in any case the memory is overwritten.
    virtual Slice Expected() = 0;
    // Says where the `*size_bytes` bytes behind the head go; null: nowhere. Receive returns its error.
    virtual Status OnHead(const PutHead& head, std::byte** to, size_t* size_bytes) = 0;
    // So many more bytes of the data have come.
    virtual void OnData(size_t size_bytes) = 0;
  };

  PutStream() = default;
  // Switches off Nagle's delay.
  explicit PutStream(Descriptor socket);

  bool open() const { return socket_.valid(); }
  int descriptor() const { return socket_.get(); }
  // Everything queued counts as sent from here on.
  void Close();

  void Queue(const void* data, size_t size_bytes);  // a copy
  void QueueReference(const void* data, size_t size_bytes);
  // Counted from the beginning.
  uint64_t queued_bytes() const { return queued_bytes_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  bool flushed() const { return sent_bytes_ == queued_bytes_; }
  // Copies what is queued by reference, so that its memory is not read any more.
  void Detach();
  // Forgets what is queued and all that is queued afterwards; it counts as sent.
  void Drop();
  // Sends some of what is queued, if the socket takes it.
  Status Flush(bool* moved);
  // Takes some of what has come. kPeerLost at the end of the stream.
  Status Receive(Receiver* receiver, bool* moved);
  void EndSending();

 private:
  struct Piece {
    Bytes own;                      // empty: a reference
    const uint8_t* data = nullptr;  // of a reference
    size_t size_bytes = 0;
    const uint8_t* begin() const { return own.empty() ? data : own.data(); }
  };

  // Counts bytes that are to be queued. False when there is nothing to queue, or the stream is dropped.
  bool Count(size_t size_bytes);
  // One system call: due data and expected data go to where they belong, the rest through a buffer.
  Status Read(Receiver* receiver, size_t* moved_bytes, size_t* wanted_bytes);
  // Moves each byte to where it belongs, unless it lies there already.
  Status Distribute(Receiver* receiver, const std::byte* from, size_t size_bytes);
  // So many bytes more of the head or of the data are where they belong.
  Status Advance(Receiver* receiver, size_t size_bytes);

  Descriptor socket_;
  std::deque<Piece> pieces_;
  Bytes spare_;                  // empty; the next copy uses its memory
  size_t first_sent_bytes_ = 0;  // of the first piece
  uint64_t queued_bytes_ = 0, sent_bytes_ = 0;
  bool dropped_ = false;

  // Receiving: either a head is coming (left_bytes_ is 0), or data are.
  PutHead head_{};
  size_t head_bytes_ = 0;    // how many of the head have come
  std::byte* to_ = nullptr;  // where the next byte of the data goes; null: nowhere
  size_t left_bytes_ = 0;    // of the data
};

}  // namespace farandole
