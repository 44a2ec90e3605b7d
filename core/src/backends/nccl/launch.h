// One work as calls of NCCL among all its ranks, a group of them where tensors are fused: nothing is packed. The driver
// alone calls.
#pragma once

#include <vector>

#include "backends/nccl/calls.h"
#include "backends/nccl/lane.h"

namespace farandole {

class Launch {
 public:
  explicit Launch(const NcclLibrary& nccl) : nccl_(nccl), calls_(nccl) {}

  // After every tensor's ready event, in the lane's stream. REQUIRES: the communicator is ready; what was launched
  // before has ended.
  Status Begin(const Task& task, Communicator* communicator, Lane* lane);
  // The device is past it, and the communicator is ready, as it is to be again before the next.
  Status End() { return calls_.End(); }

 private:
  Status TakeMemory(const Task& task);
  void ListEach(const Task& task, const NcclReduction& reduction, CallList* calls) const;
  void ListRows(const Task& task, const NcclReduction& reduction, CallList* calls) const;

  const NcclLibrary& nccl_;
  Calls calls_;
  Communicator* communicator_ = nullptr;
  Lane* lane_ = nullptr;
  std::vector<Segment> tensors_;
};

}  // namespace farandole
