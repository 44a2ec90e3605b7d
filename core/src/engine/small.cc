#include "engine/small.h"

#include "collectives/cells.h"

namespace farandole {
namespace {

// Nearly always one tensor, which needs no memory of its own.
class CellTensors {
 public:
  explicit CellTensors(const Request& request) : count_(request.tensors.size()) {
    if (count_ > 1) many_.resize(count_);
    for (size_t i = 0; i < count_; ++i) {
      const Tensor& tensor = request.tensors[i];
      at(i) = {tensor.input, tensor.output, tensor.dtype, static_cast<size_t>(ElementCount(tensor.shape))};
    }
  }
  const CellTensor* data() const { return count_ > 1 ? many_.data() : &one_; }
  size_t count() const { return count_; }

 private:
  CellTensor& at(size_t i) { return count_ > 1 ? many_[i] : one_; }

  size_t count_;
  CellTensor one_;
  std::vector<CellTensor> many_;
};

}  // namespace

void PutSmall(Operation* operation, bool wants_bell) {
  const CellTensors tensors(operation->request);
  Admission& admission = operation->admission;
  admission.cells->Put(admission.set->position, tensors.data(), tensors.count(), admission.stamp(), wants_bell);
}

void FoldSmall(Operation* operation) {
  const FloatingPointScope scope;
  const CellTensors tensors(operation->request);
  const Reduction reduction = ReductionOf(operation->request, operation->admission.set->size());
  const Admission& admission = operation->admission;
  FoldCells(*admission.cells, reduction.reduce, reduction.scale, tensors.data(), tensors.count(),
            admission.set->position);
}

// ---- a call

void SmallCall::Put() {
  const TensorView& tensor = asked_.tensors[0];
  size_t count = 1;
  for (const int64_t dimension : tensor.shape) count *= static_cast<size_t>(dimension);
  segment_ = {tensor.input, tensor.output, tensor.dtype, count};
  admission.cells->Put((*members)->position, &segment_, 1, admission.stamp());
}

void SmallCall::Take() {
  const FloatingPointScope scope;
  const ProcessSet& set = **members;
  const Reduction reduction = ReductionOf(asked_, set.size());
  FoldCells(*admission.cells, reduction.reduce, reduction.scale, &segment_, 1, set.position);
  over_.store(true, std::memory_order_release);
}

OperationPtr SmallCall::Become() {
  OperationPtr operation = std::make_shared<Operation>(Request(asked_));
  operation->admission = admission;
  operation->admission.set = *members;
  became_ = operation;
  over_.store(true, std::memory_order_release);
  return operation;
}

}  // namespace farandole
