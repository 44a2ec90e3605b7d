// Turns the operations of one agreed batch into tasks for the backends. Equal on all ranks, apart from memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/types.h"
#include "operation/operation.h"
#include "reduce/reduce.h"

namespace farandole {

// Fuse says which tensors of a batch share a task. Pure, and equal on every rank because its input is. Returns indices
// of `tasks`, each exactly once, in groups ordered by their first item. Within a process set, allreduces of one dtype,
// reduction and scale (except Adasum, which needs each tensor as a whole), and broadcasts of one root (of any dtypes),
// share a group up to threshold_bytes. A larger item is alone, as is everything that cannot be concatenated.
std::vector<std::vector<size_t>> Fuse(const std::vector<const Task*>& tasks, int64_t threshold_bytes);

struct ReadyOperation {
  OperationPtr operation;
  std::vector<int64_t> counts;  // position by position, see Signature::CountsPerRank
};

// A task, with the operation, and the index of its tensor, for each of the task's buffers.
struct PlannedTask {
  Task task;
  std::vector<OperationPtr> operations;
  std::vector<size_t> tensors;
  int64_t started_ns = 0;    // for a timeline
  std::optional<Task> wide;  // what the backend performs in its place, see WidenIntegerAverage
};

// Appends the tasks of `batch`, allocates outputs (AllocatesOutput) and counts tasks_left. When there is no memory for
// a result the epoch cannot go on, since the other ranks count on this one.
Status PlanBatch(const std::vector<ReadyOperation>& batch, int64_t fusion_threshold_bytes,
                 std::vector<PlannedTask>* tasks);

// ---- averages of integers, for any backend: it sums wide copies of the inputs (reduce/integer_average.h), and the
// averages of these sums are the results. The copies belong to the operations, because transfers may access the copies
// for as long as they may access the tensors.

// Gives an average of integers the wide sum that the backend performs instead (PlannedTask::wide); no-op for other
// tasks. kInternal when memory is short. REQUIRES: the inputs are there, in host memory.
Status WidenIntegerAverage(PlannedTask* planned);
// Writes the results of such an average, once the backend is done; no-op for other tasks.
void NarrowIntegerAverage(PlannedTask* planned);

}  // namespace farandole
