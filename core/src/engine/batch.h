// From the operations of one agreed batch to the pieces of work that the back ends perform. Equal on all ranks, memory
// apart.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "engine/operation.h"

namespace farandole {

struct ReadyOperation {
  OperationPtr operation;
  std::vector<int64_t> counts;  // position by position, see Signature::CountsPerRank
};

// Task, and beside each of its segments the operation, and which of its tensors, that it comes from.
struct PlannedTask {
  Task task;
  std::vector<OperationPtr> operations;
  std::vector<size_t> tensors;
  int64_t started_ns = 0;  // for a timeline
};

// Appends the tasks of `batch`, allocates outputs (AllocatesOutput) and counts tasks_left. When there is no memory for
// a result the epoch cannot go on, since the other ranks count on this one.
Status PlanBatch(const std::vector<ReadyOperation>& batch, int64_t fusion_threshold_bytes,
                 std::vector<PlannedTask>* tasks);

}  // namespace farandole
