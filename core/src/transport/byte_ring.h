// A byte queue between one writer and one reader over plain memory that is handed in: heap for two threads, a shared
// mapping for two processes.
//
// It holds no pointers, so both ends may see the memory at different addresses, and zero-filled memory is an empty
// ring, so nobody has to initialise it before the other looks. The capacity is what remains of the memory after the
// header.
//
//   offset 0     written, writer_closed     stored by the writer alone
//   offset 128   read, reader_closed        stored by the reader alone
//   offset 256   bytes                      byte i of the stream lies at i % capacity
//
// The two ends stand on different pairs of cache lines because the processor prefetches lines in pairs.
//
// Thread rule: an object serves one end and one thread at a time; the two ends need no lock. Nothing here waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farandole {

class ByteRing {
 public:
  // REQUIRES: `memory` is 64-byte aligned, was zero-filled before the first use by either end, outlives this object,
  // and memory_bytes > RequiredBytes(0) is the same number at both ends.
  ByteRing(void* memory, size_t memory_bytes);

  // Memory for a ring that holds capacity_bytes.
  static size_t RequiredBytes(size_t capacity_bytes);

  // Return the number of bytes moved, 0 when the ring is full or empty.
  size_t Write(const void* data, size_t size_bytes);
  size_t Read(void* data, size_t size_bytes);

  // What was written before the writer closed can still be read.
  void CloseAsWriter();
  void CloseAsReader();
  bool writer_closed() const;
  bool reader_closed() const;

 private:
  struct End {
    std::atomic<uint64_t> position;  // bytes since the beginning; never wraps in practice
    std::atomic<uint32_t> closed;
  };
  struct Header {
    alignas(128) End writer;
    alignas(128) End reader;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock would not work between processes");

  size_t WritePiece(const uint8_t* data, size_t size_bytes);
  size_t ReadPiece(uint8_t* data, size_t size_bytes);

  Header* const header_;
  uint8_t* const bytes_;
  const uint64_t capacity_;
  // The other end's position as last seen: its cache line is touched only when this no longer suffices.
  uint64_t seen_position_ = 0;
};

}  // namespace farandole
