// ProgressLoop: tensors that do not lie in host memory.
#include "engine/progress_loop.h"

namespace farandole {

bool ProgressLoop::InputsReady(PlannedTask* planned) {
  bool ready = false;
  const Status prepared = copies_.Prepare(planned, &ready);
  if (!prepared.ok()) Abort(failures_.OfThisRank(prepared));
  return prepared.ok() && ready;
}

void ProgressLoop::FinishCollective(const OperationPtr& operation) {
  bool complete = false;
  const Status status = copies_.Return(operation, &complete);
  if (complete) FinishCopied({{operation, status}});
}

bool ProgressLoop::PollCopies() {
  if (!copies_.busy()) return false;
  std::vector<HostCopies::Completed> completed;
  const bool moved = copies_.Poll(&completed);
  if (running_ == nullptr) copies_.FreeSurplus();
  FinishCopied(completed);
  return moved;
}

// The other ranks have their results, so what a device does wrong now is this rank's alone.
void ProgressLoop::FinishCopied(const std::vector<HostCopies::Completed>& completed) {
  for (const auto& [operation, status] : completed) {
    if (status.ok()) {
      Finish(operation, status);
    } else {
      Finish(operation, {status.code(), operation->Title() + " failed on rank " + std::to_string(world_->rank) + ": " +
                                            status.message()});
    }
  }
}

// This rank leaves, or fails operations: results that are on their way still arrive.
void ProgressLoop::AwaitCopies() {
  std::vector<HostCopies::Completed> completed;
  copies_.Drain(&completed);
  FinishCopied(completed);
}

}  // namespace farandole
