// From the operations of one agreed batch to the pieces of work that the back ends perform. Equal on all ranks, memory
// apart.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "engine/operation.h"

namespace farandole {

struct ReadyOperation {
  OperationPtr operation;
  std::vector<int64_t> extents;  // position by position, see Signature::ExtentCount
};

// Work, and beside each of its segments the operation, and which of its tensors, that it comes from.
struct PlannedWork {
  Work work;
  std::vector<OperationPtr> operations;
  std::vector<size_t> tensors;
  int64_t started_ns = 0;  // for a timeline
};

// Appends the works of `batch`, allocates outputs (AllocatesOutput) and counts works_left. When there is no memory for
// a result the epoch cannot go on, since the other ranks count on this one.
Status PlanBatch(const std::vector<ReadyOperation>& batch, int64_t fusion_threshold_bytes,
                 std::vector<PlannedWork>* works);

}  // namespace farandole
