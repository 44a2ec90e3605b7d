#include "engine/small_call.h"

#include <algorithm>
#include <utility>

#include "engine/small.h"

namespace farandole {

bool SmallCall::Means(const Signature& signature) const {
  if (signature.kind != OpKind::kAllreduce || signature.set != asked_.process_set) return false;
  if (signature.backend != 0 || signature.device != DeviceKind::kHost || signature.tensors.size() != 1) return false;
  if (signature.reduce != asked_.reduce || signature.prescale != asked_.prescale ||
      signature.postscale != asked_.postscale)
    return false;
  const TensorSpec& tensor = signature.tensors[0];
  return tensor.dtype == asked_.tensor.dtype &&
         std::equal(tensor.shape.begin(), tensor.shape.end(), asked_.shape, asked_.shape + asked_.dimension_count);
}

void SmallCall::Put() { plan.half->Put((*members)->position, &asked_.tensor, 1, plan.sequence()); }

void SmallCall::Take() {
  const FloatingPointScope scope;
  const ProcessSet& set = **members;
  const Reduction reduction = ReductionOf(asked_.reduce, asked_.prescale, asked_.postscale, set.size());
  plan.half->Fold(reduction.reduce, reduction.scale, &asked_.tensor, 1, set.position);
  over_.store(true, std::memory_order_release);
}

OperationPtr SmallCall::Become() {
  OperationPtr operation = std::make_shared<Operation>(AsRequest());
  operation->plan = plan;
  operation->plan.set = *members;
  became_ = operation;
  over_.store(true, std::memory_order_release);
  return operation;
}

Request SmallCall::AsRequest() const {
  Request request;
  request.kind = OpKind::kAllreduce;
  request.name = asked_.name;
  request.site = asked_.site;
  request.reduce = asked_.reduce;
  request.prescale = asked_.prescale;
  request.postscale = asked_.postscale;
  request.process_set = asked_.process_set;
  Tensor tensor;
  tensor.input = asked_.tensor.input;
  tensor.output = asked_.tensor.output;
  tensor.dtype = asked_.tensor.dtype;
  tensor.shape.assign(asked_.shape, asked_.shape + asked_.dimension_count);
  request.tensors.push_back(std::move(tensor));
  return request;
}

}  // namespace farandole
