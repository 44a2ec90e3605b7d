// Operations of one rank alone, in a world or in a process set of one: the result is its own contribution. Nobody is
// asked and nothing is waited for, so an operation is over when Perform returns. The engine owns it; any thread.
#pragma once

#include <memory>
#include <mutex>

#include "engine/device_copies.h"
#include "engine/operation.h"
#include "world/process_set.h"

namespace farandole {

class Solo {
 public:
  // world_of_one: it also has the process sets, which else the negotiation has.
  explicit Solo(bool world_of_one);

  // REQUIRES: in a world of one. Null when there is no such set, or no longer.
  ProcessSetPtr FindSet(int id);
  // Completes the operation; what it failed with stands in its status.
  void Perform(const OperationPtr& operation);

 private:
  Status ChangeSets(Operation* operation);
  Status PerformFromDevice(const OperationPtr& operation);

  std::mutex sets_mutex_;
  std::unique_ptr<ProcessSets> sets_;
  // A world of several has such copies in its progress loop, too; these are not for that.
  std::mutex copies_mutex_;
  HostCopies copies_;
};

}  // namespace farandole
