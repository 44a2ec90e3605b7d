// Data that one rank puts to operations of another, over a connected, non-blocking socket: a head of fixed size says
// what follows, then come the data, from and to the memory where they belong.
//
//   | head, kPutHeadBytes | data | head | data | ...      what a head means is for the layer above
//
// Nothing here blocks. What is sent by reference is not copied: it has to stay as it is until sent_bytes() has passed
// it. One thread (the driver) at a time.
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
  struct Room {
    std::byte* data = nullptr;
    size_t size_bytes = 0;
  };
  // Who takes what comes.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // Memory in which the next data may be received together with their head: not copied if OnHead says that they go
    // there. Whatever comes is written to it.
    virtual Room Expected() = 0;
    // Where the `*size_bytes` bytes behind the head go; null: nowhere. An error is handed through.
    virtual Status OnHead(const PutHead& head, std::byte** to, size_t* size_bytes) = 0;
    virtual void OnData(size_t size_bytes) = 0;  // so many more of them are there
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
  // Copies what is queued by reference: that memory is not read any more.
  void Detach();
  void Drop();  // what is queued, and all that is queued afterwards; it counts as sent
  // Sends some of it, if the socket takes it.
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

  bool Count(size_t size_bytes);
  Status Read(Receiver* receiver, size_t* moved_bytes, size_t* wanted_bytes);
  Status Deal(Receiver* receiver, const std::byte* from, size_t size_bytes);
  Status Take(Receiver* receiver, size_t size_bytes);

  Descriptor socket_;
  std::deque<Piece> pieces_;
  Bytes spare_;                  // empty; its memory is for the next copy
  size_t first_sent_bytes_ = 0;  // of the first piece
  uint64_t queued_bytes_ = 0, sent_bytes_ = 0;
  bool dropped_ = false;

  PutHead head_{};
  size_t head_bytes_ = 0;  // of the head, that are there
  std::byte* to_ = nullptr;
  size_t left_bytes_ = 0;  // of the data
};

}  // namespace farandole
