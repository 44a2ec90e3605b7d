// Streams and events of the fake driver: queues worked off by threads, and counters that they reach.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace {

struct EventState {
  std::mutex mutex;
  std::condition_variable happened;
  uint64_t recorded = 0, reached = 0;

  void Reach(uint64_t record) {
    std::lock_guard<std::mutex> lock(mutex);
    reached = std::max(reached, record);
    happened.notify_all();
  }
  void Await(uint64_t record) {
    std::unique_lock<std::mutex> lock(mutex);
    happened.wait(lock, [&] { return reached >= record; });
  }
};

// A queue and the thread that works it off; the thread ends when the stream is destroyed and the queue is empty.
struct StreamState {
  int ordinal = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool closed = false;

  void Push(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(std::move(task));
    changed.notify_all();
  }
  void Close() {
    std::lock_guard<std::mutex> lock(mutex);
    closed = true;
    changed.notify_all();
  }
  void Run() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return closed || !queue.empty(); });
        if (queue.empty()) return;
        task = std::move(queue.front());
        queue.pop_front();
      }
      task();
    }
  }
};

}  // namespace
