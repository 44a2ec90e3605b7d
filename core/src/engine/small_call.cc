#include "engine/small_call.h"

#include "collectives/cells.h"
#include "engine/small.h"

namespace farandole {

void SmallCall::Put() {
  const TensorView& tensor = asked_.tensors[0];
  size_t count = 1;
  for (const int64_t dimension : tensor.shape) count *= static_cast<size_t>(dimension);
  segment_ = {tensor.input, tensor.output, tensor.dtype, count};
  plan.cells->Put((*members)->position, &segment_, 1, plan.sequence());
}

void SmallCall::Take() {
  const FloatingPointScope scope;
  const ProcessSet& set = **members;
  const Reduction reduction = ReductionOf(asked_, set.size());
  FoldCells(*plan.cells, reduction.reduce, reduction.scale, &segment_, 1, set.position);
  over_.store(true, std::memory_order_release);
}

OperationPtr SmallCall::Become() {
  OperationPtr operation = std::make_shared<Operation>(Request(asked_));
  operation->plan = plan;
  operation->plan.set = *members;
  became_ = operation;
  over_.store(true, std::memory_order_release);
  return operation;
}

}  // namespace farandole
