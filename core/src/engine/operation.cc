#include "engine/operation.h"

#include <cmath>
#include <limits>

#include "common/reduce.h"

namespace farandole {
namespace {

std::string Title(const Request& request) {
  return NameOf(request.kind) + (request.name.empty() ? std::string() : " '" + request.name + "'");
}

Status CheckTensor(const Request& request, const Tensor& tensor) {
  int64_t elements = 1;
  for (int64_t dimension : tensor.shape) {
    if (dimension < 0)
      return Invalid(Title(request) + ": shape " + ToString(tensor.shape) + " has a negative dimension");
    if (dimension > 0 && elements > std::numeric_limits<int64_t>::max() / 16 / dimension) {
      return Invalid(Title(request) + ": shape " + ToString(tensor.shape) + " has too many elements");
    }
    elements *= dimension;
  }
  if (tensor.device < 0 || tensor.device >= kDeviceKindCount) {
    return Invalid(Title(request) + ": this build knows no device of kind " + std::to_string(tensor.device));
  }
  if (tensor.device != request.tensors[0].device) {
    return Invalid(Title(request) + ": its tensors lie on devices of different kinds; use one operation for each kind");
  }
  if (request.kind == OpKind::kAllreduce && !Supports(tensor.dtype, request.reduce)) {
    return Invalid(Title(request) + ": " + NameOf(request.reduce) + " of " + NameOf(tensor.dtype) + " is not defined");
  }
  if (request.kind == OpKind::kAllgather && tensor.shape.empty()) {
    return Invalid(Title(request) + ": a scalar has no first dimension to gather along; give it the shape (1,)");
  }
  if (tensor.input == nullptr && elements > 0)
    return Invalid(Title(request) + ": a tensor of " + std::to_string(elements) + " elements has no memory");
  if (tensor.output == nullptr && elements > 0 && request.kind != OpKind::kAllgather) {
    return Invalid(Title(request) + ": there is no memory for the result");
  }
  return Status::Ok();
}

}  // namespace

Status CheckRequest(const Request& request, int world_size) {
  if (request.tensors.empty() != (request.kind == OpKind::kBarrier)) {
    return Invalid(Title(request) + (request.tensors.empty() ? ": no tensors were given" : " takes no tensors"));
  }
  if (request.kind == OpKind::kBroadcast && (request.root < 0 || request.root >= world_size)) {
    return Invalid(Title(request) + ": root rank " + std::to_string(request.root) +
                   " is out of range; this job has ranks 0 to " + std::to_string(world_size - 1));
  }
  if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale * request.prescale)) {
    return Invalid(Title(request) + ": the scale factors must be finite");
  }
  for (const Tensor& tensor : request.tensors) FRD_RETURN_IF_ERROR(CheckTensor(request, tensor));
  return Status::Ok();
}

Description Describe(const Request& request) {
  Description description;
  description.name = request.name;
  Signature& signature = description.signature;
  signature.kind = request.kind;
  if (request.kind == OpKind::kAllreduce) {
    signature.reduce = request.reduce;
    signature.prescale = request.prescale;
    signature.postscale = request.postscale;
  }
  if (request.kind == OpKind::kBroadcast) signature.root = request.root;
  if (!request.tensors.empty()) signature.device = request.tensors[0].device;
  for (const Tensor& tensor : request.tensors) {
    TensorSpec spec{tensor.dtype, tensor.shape};
    if (request.kind == OpKind::kAllgather) {
      description.extents.push_back(spec.shape[0]);
      spec.shape.erase(spec.shape.begin());
    }
    signature.tensors.push_back(std::move(spec));
  }
  return description;
}

}  // namespace farandole
