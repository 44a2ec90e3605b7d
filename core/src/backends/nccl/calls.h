// NCCL's calls for one work, as one group, with the reduction that is made for them. The driver alone calls.
#pragma once

#include <functional>
#include <optional>

#include "backends/backend.h"
#include "backends/nccl/communicator.h"

namespace farandole {

class Calls {
 public:
  explicit Calls(const NcclLibrary& nccl) : nccl_(nccl) {}

  // `enqueue` makes the calls, with the work's reduction and these factors. REQUIRES: the communicator is ready, and of
  // several ranks where there are factors (meaning.h); what was begun before has ended.
  Status Begin(const Work& work, const Scale& scale, Communicator* communicator,
               const std::function<Status(NcclReduce)>& enqueue);
  // The same for calls that reduce nothing.
  Status Begin(Communicator* communicator, const std::function<Status()>& enqueue);
  // The device is past them, and the communicator is ready.
  Status End();

 private:
  // REQUIRES: within Communicator::Make.
  Status AsGroup(const std::function<Status()>& enqueue);
  Status MakeReduction(const Work& work, const Scale& scale, NcclReduce* reduce);

  const NcclLibrary& nccl_;
  Communicator* communicator_ = nullptr;
  std::optional<NcclReduce> scaled_sum_;  // made for this work
};

}  // namespace farandole
