#include "order.h"

#include <algorithm>
#include <chrono>

namespace farandole_mxnet {

void Order::Add(Ordered* call) {
  std::lock_guard<std::mutex> lock(mutex_);
  queues_[call->key].waiting.push_back({call});
  ++waiting_;
  ++unfinished_;
}

void Order::Ready(Ordered* call) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto queue = queues_.find(call->key);
  for (Entry& entry : queue->second.waiting) {
    if (entry.call == call) entry.ready = true;
  }
  Advance(&lock, &*queue);
}

void Order::Skip(Ordered* call) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto queue = queues_.find(call->key);
  std::deque<Entry>& waiting = queue->second.waiting;
  waiting.erase(
      std::find_if(waiting.begin(), waiting.end(), [call](const Entry& entry) { return entry.call == call; }));
  --waiting_;
  --unfinished_;
  changed_.notify_all();
  Advance(&lock, &*queue);
}

void Order::Ended(Ordered* call) {
  std::unique_lock<std::mutex> lock(mutex_);
  --unfinished_;
  changed_.notify_all();
  if (!call->has_name) return;
  const auto queue = queues_.find(call->key);
  queue->second.in_flight = false;
  Advance(&lock, &*queue);
}

void Order::Advance(std::unique_lock<std::mutex>* lock, Queues::value_type* entry) {
  Queue& queue = entry->second;
  if (queue.advancing) return;  // that thread will look again
  queue.advancing = true;
  while (!queue.waiting.empty() && queue.waiting.front().ready && !queue.in_flight) {
    Ordered* call = queue.waiting.front().call;
    queue.waiting.pop_front();
    queue.in_flight = call->has_name;
    lock->unlock();
    call->Begin();  // the call may have ended, and be destroyed, when this returns
    lock->lock();
    --waiting_;
    changed_.notify_all();
  }
  queue.advancing = false;
  if (queue.waiting.empty() && !queue.in_flight) queues_.erase(queues_.find(entry->first));
}

bool Order::AwaitBegun(int64_t limit_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return waiting_ == 0; });
}

bool Order::AwaitEnded(int64_t limit_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return unfinished_ == 0; });
}

void Order::Hold() {
  std::unique_lock<std::mutex> lock(mutex_);
  // A call may end before its Begin returns to Advance. Hold waits for Advance, too.
  changed_.wait(lock, [this] { return unfinished_ == 0 && waiting_ == 0; });
  lock.release();
}

void Order::Release() { mutex_.unlock(); }

}  // namespace farandole_mxnet
