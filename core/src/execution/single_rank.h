// Operations of one rank alone, in a world or in a process set of one: the result is its own contribution. No other
// rank takes part, so an operation is over when Perform returns. The engine owns it; any thread.
#pragma once

#include <memory>
#include <mutex>

#include "execution/device_copies.h"
#include "operation/operation.h"
#include "world/process_set.h"

namespace farandole {

class SingleRank {
 public:
  // world_of_one: it also has the process sets, which the negotiation has in a world of several.
  explicit SingleRank(bool world_of_one);

  // REQUIRES: in a world of one. Returns null for an unknown or removed set.
  ProcessSetPtr FindSet(int id);
  // Completes the operation; its status holds an error.
  void Perform(const OperationPtr& operation);

 private:
  Status ChangeSets(Operation* operation);
  Status PerformFromDevice(const OperationPtr& operation);

  std::mutex sets_mutex_;
  std::unique_ptr<ProcessSets> sets_;
  // For sets of one rank. In a world of several, the progress loop has copies of its own.
  std::mutex copies_mutex_;
  HostCopies copies_;
};

}  // namespace farandole
