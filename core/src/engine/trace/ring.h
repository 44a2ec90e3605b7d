// A bounded queue from any thread to one: Push never waits and never allocates, and fails when the queue is full.
//
// Dmitry Vyukov, "Bounded MPMC queue": each cell's sequence says whose turn it is, that of the pusher who gets its
// number (sequence == number), or that of the reader (sequence == number + 1).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace farandole {

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
      if (sequence < number) return false;  // the reader is a whole round behind
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

}  // namespace farandole
