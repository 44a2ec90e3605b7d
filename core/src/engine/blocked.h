// Threads of the program that do nothing but wait for an operation, however long that takes. Any thread.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "engine/operation.h"

namespace farandole {

using ThreadId = uint64_t;  // as stacks name threads

class Blocked {
 public:
  // The calling thread waits for the operation from here to Remove.
  void Add(const OperationPtr& operation) {
    std::lock_guard<std::mutex> lock(mutex_);
    operations_[Self()] = operation;
  }
  void Remove() {
    std::lock_guard<std::mutex> lock(mutex_);
    operations_.erase(Self());
  }
  bool empty() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return operations_.empty();
  }
  std::map<ThreadId, OperationPtr> operations() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return operations_;
  }

 private:
  static ThreadId Self() { return static_cast<ThreadId>(pthread_self()); }

  mutable std::mutex mutex_;
  std::map<ThreadId, OperationPtr> operations_;
};

}  // namespace farandole
