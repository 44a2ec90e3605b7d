#include "engine/small.h"

#include <cstring>

#include "algorithms/choose_path.h"
#include "common/failpoint.h"

namespace farandole {

namespace {

// Holds nearly always one tensor, which needs no allocation.
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
  tensor_ = {tensor.input, tensor.output, tensor.dtype, count};
  admission.cells->Put((*members)->position, &tensor_, 1, admission.stamp());
}

// Sets `over_` last: the caller's thread may return then, and the call is on its stack.
void SmallCall::Take(bool at_once) {
  const FloatingPointScope scope;
  const ProcessSet& set = **members;
  const Reduction reduction = ReductionOf(asked_, set.size());
  FoldCells(*admission.cells, reduction.reduce, reduction.scale, &tensor_, 1, set.position);
  if (record != nullptr) record->End(at_once ? record->submitted.load(std::memory_order_relaxed) : Ticks());
  over_.store(true, std::memory_order_release);
}

FlightFacts SmallCall::Facts() const {
  uint64_t bytes = SizeOf(asked_.tensors[0].dtype);
  for (const int64_t dimension : asked_.tensors[0].shape) bytes *= static_cast<uint64_t>(dimension);
  return {asked_.kind, asked_.tensors[0].dtype, asked_.reduce, asked_.process_set, 1, bytes};
}

// The request is copied now, since the caller's view of it may be gone before the operation is.
OperationPtr SmallCall::Become() {
  OperationPtr operation = std::make_shared<Operation>(Request(asked_));
  if (sequence_number_ >= 0) operation->SetName(name_, sequence_number_);
  operation->admission = admission;
  operation->admission.set = *members;
  operation->record = record;
  became_ = operation;
  over_.store(true, std::memory_order_release);
  return operation;
}

namespace {

// Every instruction set folds this many bytes in whole steps. A shorter tensor in the cell's line is followed by zeros
// or the next tensor, so the fold may read past its end and write to memory aside. A fold of the exact length would
// take 21 ns instead of 13.
constexpr size_t kStepBytes = 32;

// From this size on, each of two members writes its result over the payload that it has read. The payload's lines are
// then modified in its cache, and the owner's next put takes them from there. Lines that were only read stay shared,
// and the owner has to have each invalidated before it writes. No member reads what is written: the owner reads its own
// input where that is. Microseconds for two cores of an AMD EPYC (Zen 4), written over and only read, in two states of
// the virtual machine: in the second one all lines took longer to cross, as between cores that are far apart.
//
//          first          second
//   4 KB   0.45 |  0.60
//   16 KB  1.45 |  2.80
//   32 KB  2.40 |  5.00   5.5 | 16.5
//   64 KB  4.25 |  9.50   8.9 | 31.4
//
// Prefetching for writing, without a write, changed nothing.
constexpr size_t kLeastOverwrittenBytes = 1 << 10;

bool OverwritesPayload(const CellBuffer& cells, const CellTensor& tensor, bool reads_own) {
  return cells.member_count() == 2 && reads_own && tensor.size_bytes() >= kLeastOverwrittenBytes;
}

}  // namespace

void FoldCells(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* tensors, size_t tensor_count,
               int reader) {
  FRD_FAILPOINT("cells.fold");
  const void* inputs[kMostCellMembers];
  size_t offset = 0;
  for (size_t i = 0; i < tensor_count; ++i) {
    const CellTensor& tensor = tensors[i];
    const size_t size_bytes = tensor.size_bytes();
    for (int m = 0; m < cells.member_count(); ++m) inputs[m] = cells.payload(m) + offset;
    const bool reads_own = reader >= 0 && tensor.input != nullptr;
    if (reads_own) inputs[reader] = tensor.input;
    const auto fold = [&](size_t element_count, void* output) {
      Fold(tensor.dtype, reduce, inputs, static_cast<size_t>(cells.member_count()), element_count, scale, output);
    };
    if (tensor.output != nullptr && cells.payload_is_in_line() && size_bytes < kStepBytes &&
        offset + kStepBytes <= CellBuffer::kInLineBytes) {
      alignas(kStepBytes) std::byte own[kStepBytes] = {}, result[kStepBytes];
      if (reads_own) inputs[reader] = std::memcpy(own, tensor.input, size_bytes);
      fold(kStepBytes / SizeOf(tensor.dtype), result);
      std::memcpy(tensor.output, result, size_bytes);
    } else if (tensor.output != nullptr && OverwritesPayload(cells, tensor, reads_own)) {
      FoldTwice(tensor.dtype, reduce, inputs[0], inputs[1], tensor.element_count, scale, tensor.output,
                cells.payload_to_write(1 - reader) + offset);
    } else if (tensor.output != nullptr) {
      fold(tensor.element_count, tensor.output);
    }
    offset += size_bytes;
  }
}

}  // namespace farandole
