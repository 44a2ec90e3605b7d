// The order in which the core gets operations that MXNet runs.
//
// MXNet runs an operation when its arrays are ready, which may be another order on every rank. The core pairs
// operations of one name, and those without a name, by their order; so Order begins them in the order of the program:
//
//   Add (program's order) ---> waiting, one queue per set and name ---Ready, and all before it begun---> Begin
//
// Of each name one operation is in flight at a time, as the core demands; the next begins when it has ended. Any number
// without a name may be in flight. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

namespace farandole_mxnet {

// A call to be ordered. Order calls `Begin` without holding a lock.
class Ordered {
 public:
  Ordered(int32_t process_set, const std::string& name)
      : key(std::to_string(process_set) + ":" + name), has_name(!name.empty()) {}
  virtual ~Ordered() = default;
  virtual void Begin() = 0;

  const std::string key;
  const bool has_name;
};

class Order {
 public:
  void Add(Ordered* call);
  // The arrays of `call` are ready. Begins it, and calls that waited for it, now or when its turn comes.
  void Ready(Ordered* call);
  // MXNet will never run it.
  void Skip(Ordered* call);
  // `call`, which was begun, is over.
  void Ended(Ordered* call);

  // Return whether all added calls had begun, or had also ended, before the time was up.
  bool AwaitBegun(int64_t limit_ms);
  bool AwaitEnded(int64_t limit_ms);

  // For fork(): waits until all calls have ended, and lets none begin until Release, in the parent and in the child.
  void Hold();
  void Release();

 private:
  struct Entry {
    Ordered* call;
    bool ready = false;
  };
  struct Queue {
    std::deque<Entry> waiting;
    bool in_flight = false;  // of named calls
    bool advancing = false;  // by one thread at a time, so that the order holds
  };
  using Queues = std::unordered_map<std::string, Queue>;

  // An entry stays valid when others are added meanwhile; an iterator would not.
  void Advance(std::unique_lock<std::mutex>* lock, Queues::value_type* entry);

  std::mutex mutex_;
  std::condition_variable changed_;
  Queues queues_;
  int64_t waiting_ = 0;     // added, not begun
  int64_t unfinished_ = 0;  // added, not ended
};

}  // namespace farandole_mxnet
