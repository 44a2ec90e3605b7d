// The threads of the program on this rank: where they are, for ranks that wait for this one, and which of them wait
// for an operation and can call nothing else.
//
// The core knows no interpreter. A binding that can look at the program's threads calls SetStackFunction once. Any
// thread.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "engine/operation.h"

namespace farandole {

// Returns text: innermost call first, thread by thread, the main thread last. The holder of the ProgressLock calls it
// while the program may be stuck anywhere, so it must not wait for the program.
using StackFunction = std::string (*)();
void SetStackFunction(StackFunction function);

std::string StacksOfThisProcess();  // "" when no binding can look

using ThreadId = uint64_t;  // as stacks name threads

// True when every thread of the stacks is in `threads` or known to be idle, such as one of a pool without work. False
// where the stacks are cut off.
bool NoOthersMayCall(const std::string& stacks, const std::set<ThreadId>& threads);

// The innermost frame that is not Farandole's, of the last thread with one, since the main thread comes last: `File
// "train.py", line 12 in main`.
std::string UsersFrame(const std::string& stacks);

// The threads of the program that do nothing but wait for an operation, however long that takes.
class Blocked {
 public:
  // From here to Remove the calling thread waits for the operation.
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

  mutable std::mutex mutex_;  // no other lock is taken while it is held
  std::map<ThreadId, OperationPtr> operations_;
};

}  // namespace farandole
