#include "engine/small.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "collectives/cells.h"

namespace farandole {
namespace {

// Nearly always one tensor, which needs no memory of its own.
class Segments {
 public:
  explicit Segments(const Request& request) : count_(request.tensors.size()) {
    if (count_ > 1) many_.resize(count_);
    for (size_t i = 0; i < count_; ++i) {
      const Tensor& tensor = request.tensors[i];
      at(i) = {tensor.input, tensor.output, tensor.dtype, static_cast<size_t>(ElementCount(tensor.shape))};
    }
  }
  const CellSegment* data() const { return count_ > 1 ? many_.data() : &one_; }
  size_t count() const { return count_; }

 private:
  CellSegment& at(size_t i) { return count_ > 1 ? many_[i] : one_; }

  size_t count_;
  CellSegment one_;
  std::vector<CellSegment> many_;
};

void CopyInput(const Tensor& tensor, void* to) {
  if (to != tensor.input && tensor.size_bytes() > 0) std::memcpy(to, tensor.input, tensor.size_bytes());
}

// Aligned so that frameworks can take it as their own. Null when there is none.
std::shared_ptr<std::byte> HostMemory(size_t size_bytes) {
  constexpr size_t kAlignment = 64;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max<size_t>(size_bytes, 1)) != 0) return nullptr;
  return {static_cast<std::byte*>(memory), &std::free};
}

// On a device where there is a pool, else on the host.
Status AllocateMemory(ResultPool* pool, Output* output) {
  if (pool != nullptr) return pool->Take(std::max<size_t>(output->size_bytes, 1), &output->memory);
  output->memory = HostMemory(output->size_bytes);
  return output->memory ? Status::Ok() : Internal("");
}

}  // namespace

Reduction ReductionOf(const RequestFields& request, int set_size) {
  Reduction reduction{request.reduce, {request.prescale * request.postscale, 1.0}};
  if (request.reduce == ReduceOp::kAverage)
    reduction = {ReduceOp::kSum, {reduction.scale.multiplier, static_cast<double>(set_size)}};
  // Each of the factors of a product is scaled.
  if (request.reduce == ReduceOp::kProduct)
    reduction.scale.multiplier = std::pow(request.prescale, set_size) * request.postscale;
  if (request.prescale < 0 && request.reduce == ReduceOp::kMin) reduction.reduce = ReduceOp::kMax;
  if (request.prescale < 0 && request.reduce == ReduceOp::kMax) reduction.reduce = ReduceOp::kMin;
  return reduction;
}

void PutSmall(Operation* operation, bool wants_bell) {
  const Segments segments(operation->request);
  Negotiation::Plan& plan = operation->plan;
  plan.cells->Put(plan.set->position, segments.data(), segments.count(), plan.sequence(), wants_bell);
}

void FoldSmall(Operation* operation) {
  const FloatingPointScope scope;
  const Segments segments(operation->request);
  const Reduction reduction = ReductionOf(operation->request, operation->plan.set->size());
  const Negotiation::Plan& plan = operation->plan;
  FoldCells(*plan.cells, reduction.reduce, reduction.scale, segments.data(), segments.count(), plan.set->position);
}

Status PerformAlone(Operation* operation) {
  const Request& request = operation->request;
  const FloatingPointScope scope;
  Reduction reduction = ReductionOf(request, 1);
  if (NeedsWholeTensors(reduction.reduce)) reduction.reduce = ReduceOp::kSum;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const Tensor& tensor = request.tensors[i];
    void* to = tensor.output;
    if (AllocatesOutput(request.kind)) {
      FRD_RETURN_IF_ERROR(AllocateOutput(operation, i, tensor.shape[0]));
      to = operation->outputs[i].memory.get();
    }
    const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
    Reduces(request.kind) ? Fold(tensor.dtype, reduction.reduce, &tensor.input, 1, elements, reduction.scale, to)
                          : CopyInput(tensor, to);
  }
  if (TakesSplits(request.kind)) {
    for (const Tensor& tensor : request.tensors) operation->outputs.push_back(NumbersOutput({tensor.shape[0]}, false));
  }
  return Status::Ok();
}

Status AllocateOutput(Operation* operation, size_t index, int64_t rows) {
  const Tensor& tensor = operation->request.tensors[index];
  Output output;
  output.dtype = tensor.dtype;
  output.shape = tensor.shape;
  output.shape[0] = rows;
  output.size_bytes = static_cast<size_t>(ElementCount(output.shape)) * SizeOf(output.dtype);
  output.device = operation->device;
  if (const Status allocated = AllocateMemory(operation->results.get(), &output); !allocated.ok()) {
    return Internal(operation->Title() + ": no memory for a result of " + std::to_string(output.size_bytes >> 20) +
                    " MB" + (allocated.message().empty() ? "" : ": " + allocated.message()));
  }
  if (operation->outputs.size() <= index) operation->outputs.resize(index + 1);
  operation->outputs[index] = std::move(output);
  return Status::Ok();
}

Output NumbersOutput(const std::vector<int64_t>& numbers, bool scalar) {
  Output output;
  output.dtype = DType::kInt64;
  if (!scalar) output.shape = {static_cast<int64_t>(numbers.size())};
  output.size_bytes = numbers.size() * sizeof(int64_t);
  output.memory = HostMemory(output.size_bytes);
  if (!output.memory) throw std::bad_alloc();
  std::memcpy(output.memory.get(), numbers.data(), output.size_bytes);
  return output;
}

}  // namespace farandole
