// Threads of the program that do nothing but wait for an operation, however long that takes. Any thread.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "common/clock.h"
#include "engine/operation.h"

namespace farandole {

class Blocked {
 public:
  void Add(const OperationPtr& operation) {
    std::lock_guard<std::mutex> lock(mutex_);
    operations_.push_back(operation);
    since_ = Now();
  }
  void Remove(const OperationPtr& operation) {
    std::lock_guard<std::mutex> lock(mutex_);
    operations_.erase(std::find(operations_.begin(), operations_.end(), operation));
  }
  // Since when there have been none but these.
  TimePoint since() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return since_;
  }
  // For each of them its operation.
  std::vector<OperationPtr> operations() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return operations_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<OperationPtr> operations_;
  TimePoint since_{};
};

}  // namespace farandole
