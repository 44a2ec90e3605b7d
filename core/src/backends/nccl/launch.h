// One work as calls of NCCL, a group of them where tensors are fused: nothing is packed. The driver alone calls.
#pragma once

#include <optional>

#include "backends/backend.h"
#include "backends/nccl/communicator.h"
#include "backends/nccl/lane.h"

namespace farandole {

class Launch {
 public:
  explicit Launch(const NcclLibrary& nccl) : nccl_(nccl) {}

  // After every tensor's ready event, in the lane's stream. REQUIRES: the communicator is ready; what was launched
  // before has ended.
  Status Begin(const Work& work, Communicator* communicator, Lane* lane);
  // The device is past it, and the communicator is ready.
  Status End();

 private:
  Status AwaitInputs(const Work& work) const;
  Status TakeMemoryOfNobody(const Work& work) const;
  Status Enqueue(const Work& work);
  Status EnqueueEach(const Work& work, NcclReduce reduce) const;
  Status EnqueueRows(const Work& work, NcclReduce reduce) const;

  const NcclLibrary& nccl_;
  Communicator* communicator_ = nullptr;
  Lane* lane_ = nullptr;
  std::optional<NcclReduce> scaled_sum_;  // made for this work
};

}  // namespace farandole
