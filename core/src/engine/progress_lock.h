// The right to drive the progress loop, which has no thread of its own: a thread that waits takes the lock and drives,
// and the engine's own thread drives only while nobody waits. Handing work to another thread would cost two context
// switches per operation.
//
//   caller        TryTake, or WaitForChange -> drive -> Release   never holds it longer than it waits
//   loop thread   sleeps in epoll without it; woken, tries to take it; if a caller has it, parks for a moment
//
// Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace farandole {

class ProgressLock {
 public:
  bool TryTake() { return !taken_.exchange(true); }
  void Release() {
    taken_.store(false);
    NotifyWaiters();
  }

  // Sleeps until the lock is free, `done` holds, or the time is up. Whoever completes an operation calls NotifyWaiters.
  template <typename Done>
  void WaitForChange(Done done, std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    waiters_.fetch_add(1);
    changed_.wait_for(lock, limit, [&] { return done() || !taken_.load(); });
    waiters_.fetch_sub(1);
  }
  void NotifyWaiters() {
    if (waiters_.load() == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::atomic<bool> taken_{false};
  std::atomic<int> waiters_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace farandole
