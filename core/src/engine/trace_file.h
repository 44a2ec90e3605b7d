// The way of a record to the timeline's file: from any thread into a ring, and from there into the file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

// A bounded queue from any thread to one: Push never waits and never allocates, and fails when the queue is full.
//
// Dmitry Vyukov, "Bounded MPMC queue": each cell's sequence says which thread may use it next: the pusher that has its
// number (sequence == number), or the reader (sequence == number + 1).
template <typename Record, size_t kCells>
class TraceRing {
  static_assert((kCells & (kCells - 1)) == 0, "the number of cells is a power of two");

 public:
  TraceRing() : cells_(new Cell[kCells]) {
    for (size_t i = 0; i < kCells; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }

  // Any thread.
  bool Push(const Record& record) {
    uint64_t number = pushed_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[number % kCells];
      const uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
      if (sequence == number) {
        if (!pushed_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed)) continue;
        cell.record = record;
        cell.sequence.store(number + 1, std::memory_order_release);
        return true;
      }
      if (sequence < number) return false;  // the ring is full
      number = pushed_.load(std::memory_order_relaxed);
    }
  }

  // One thread at a time.
  bool Pop(Record* record) {
    Cell& cell = cells_[popped_ % kCells];
    if (cell.sequence.load(std::memory_order_acquire) != popped_ + 1) return false;
    *record = cell.record;
    cell.sequence.store(popped_ + kCells, std::memory_order_release);
    ++popped_;
    return true;
  }

 private:
  struct alignas(64) Cell {
    std::atomic<uint64_t> sequence{0};
    Record record;
  };

  const std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<uint64_t> pushed_{0};
  alignas(64) uint64_t popped_ = 0;
};

// A file that is a complete JSON array after every Append, whatever kills the process: each write overwrites the
// array's end and adds a new one.
//
//   [\n{...},\n{...}\n]\n
//   [\n{...},\n{...}      <- the next Append writes from here: ,\n{...}\n]\n
//
// A process can also be killed within a write, between two pages of it. So a write stays within a page, or goes to the
// next one with nothing but blanks before. Only the array's end can then be missing, which trace viewers accept. One
// thread at a time.
class TraceFile {
 public:
  // Makes or empties the file. kInvalid says why it cannot be.
  Status Open(const std::string& path);
  // Events, with ",\n" between them. kInternal when they cannot be written; earlier events stay.
  Status Append(const std::string& events);

 private:
  Status AppendPiece(size_t padding, const std::string& events);
  Status Write(const std::string& text);

  Descriptor file_;
  std::string path_;
  int64_t end_ = 0;  // where the next event goes
  bool has_events_ = false;
};

}  // namespace farandole
