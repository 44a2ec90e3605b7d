// How the threads of a rank wait.
//
//   Waiter     backs off between two polls of one thread: first pauses, then yields, then tells it to sleep
//   WaitList   threads that sleep until an operation ends or the ProgressLock is free
//
// Polling saves a few microseconds if the others are about to arrive, and slows down their computation if it goes on
// for long. With more ranks than cores, a pausing thread keeps the rank that it waits for from running, so it yields at
// once (docs/benchmarks/shared-memory.md#waiting). Where other programs compute, each yield may last for their slices
// of several milliseconds, so no yield begins after a millisecond.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/clock.h"

namespace farandole {

// Thread safety: one thread.
class Waiter {
 public:
  static constexpr int kPauses = 20, kYields = 50;
  static constexpr std::chrono::milliseconds kMaxYielding{1};

  // pauses: kPauses, or 0 if there are more ranks than cores.
  static Waiter OfCaller(int pauses) { return {pauses, kYields}; }
  static Waiter OfCallerWithGil(int pauses) { return {pauses, 0}; }  // never yields while it holds a lock
  static Waiter OfEngineThread() { return {kPauses, 0}; }

  Waiter(int pauses, int yields) : pauses_(pauses), end_(pauses + yields) {}

  // Pauses or yields once. Returns false once it is time to sleep.
  bool Again() {
    if (waits_ >= end_) return false;
    if (waits_ < pauses_) {
      ++waits_;
      CpuPause();
      return true;
    }
    if (waits_ == pauses_) yields_until_ = Now() + kMaxYielding;
    ++waits_;
    std::this_thread::yield();
    if (Now() >= yields_until_) waits_ = end_;  // one more look, then sleep
    return true;
  }
  void Reset() { waits_ = 0; }

  // Polls at least once, until `look` returns true or it is time to sleep. Returns whether `look` did.
  template <typename Look>
  bool Until(Look look) {
    while (!look()) {
      if (!Again()) return false;
    }
    return true;
  }

 private:
  const int pauses_, end_;
  int waits_ = 0;
  TimePoint yields_until_;
};

// Thread safety: any thread. Make `done` true with a sequentially consistent store before Notify: then either Notify
// sees the sleeper, or the sleeper sees `done`.
class WaitList {
 public:
  // Sleeps until `done` holds or the time is up.
  template <typename Done>
  void SleepUntil(Done done, std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    count_.fetch_add(1);
    changed_.wait_for(lock, limit, done);
    count_.fetch_sub(1);
  }
  void Notify() {
    if (count_.load() == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace farandole
