#include "engine/small.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "controller/coordinator.h"

namespace farandole {

Reduction ReductionOf(const Request& request, int world_size) {
  Reduction reduction{request.reduce, {request.prescale * request.postscale, 1.0}};
  if (request.reduce == ReduceOp::kAverage)
    reduction = {ReduceOp::kSum, {reduction.scale.multiplier, static_cast<double>(world_size)}};
  // Each of the factors of a product is scaled.
  if (request.reduce == ReduceOp::kProduct) {
    reduction.scale.multiplier = std::pow(request.prescale, world_size) * request.postscale;
  }
  if (request.prescale < 0 && request.reduce == ReduceOp::kMin) reduction.reduce = ReduceOp::kMax;
  if (request.prescale < 0 && request.reduce == ReduceOp::kMax) reduction.reduce = ReduceOp::kMin;
  return reduction;
}

void WriteToSpan(const Operation& operation, std::byte* span, int member) {
  std::byte* at = span + SpanStride(operation.description.signature) * member;
  for (const Tensor& tensor : operation.request.tensors) {
    const size_t size_bytes = tensor.size_bytes();
    if (size_bytes > 0) std::memcpy(at, tensor.input, size_bytes);
    at += size_bytes;
  }
}

void FoldSpan(const Operation& operation, std::byte* span, int member_count) {
  const FloatingPointScope scope;
  const int64_t stride = SpanStride(operation.description.signature);
  const Reduction reduction = ReductionOf(operation.request, member_count);
  std::vector<const void*> inputs(static_cast<size_t>(member_count));
  int64_t at = 0;
  for (const Tensor& tensor : operation.request.tensors) {
    for (int m = 0; m < member_count; ++m) inputs[static_cast<size_t>(m)] = span + stride * m + at;
    const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
    Fold(tensor.dtype, reduction.reduce, inputs.data(), inputs.size(), elements, reduction.scale,
         span + stride * member_count + at);
    at += static_cast<int64_t>(tensor.size_bytes());
  }
}

void ReadFromSpan(const Operation& operation, const std::byte* span, int member_count) {
  const std::byte* at = span + SpanStride(operation.description.signature) * member_count;
  for (const Tensor& tensor : operation.request.tensors) {
    const size_t size_bytes = tensor.size_bytes();
    if (size_bytes > 0) std::memcpy(tensor.output, at, size_bytes);
    at += size_bytes;
  }
}

Status PerformAlone(Operation* operation) {
  const Request& request = operation->request;
  const FloatingPointScope scope;
  const Reduction reduction = ReductionOf(request, 1);
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const Tensor& tensor = request.tensors[i];
    if (request.kind == OpKind::kAllreduce) {
      const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
      Fold(tensor.dtype, reduction.reduce, &tensor.input, 1, elements, reduction.scale, tensor.output);
      continue;
    }
    void* to = tensor.output;
    if (request.kind == OpKind::kAllgather) {
      FRD_RETURN_IF_ERROR(AllocateOutput(operation, i, tensor.shape[0]));
      to = operation->outputs[i].memory.get();
    }
    if (to != tensor.input && tensor.size_bytes() > 0) std::memcpy(to, tensor.input, tensor.size_bytes());
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
  auto* const memory = static_cast<std::byte*>(std::malloc(output.size_bytes > 0 ? output.size_bytes : 1));
  if (memory == nullptr) {
    return Internal(operation->description.Title() + ": no memory for a result of " +
                    std::to_string(output.size_bytes >> 20) + " MB");
  }
  output.memory = std::shared_ptr<std::byte>(memory, &std::free);
  operation->outputs.resize(operation->request.tensors.size());
  operation->outputs[index] = std::move(output);
  return Status::Ok();
}

}  // namespace farandole
