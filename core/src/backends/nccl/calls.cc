#include "backends/nccl/calls.h"

#include "backends/nccl/meaning.h"

namespace farandole {

Status Calls::Begin(const Work& work, const Scale& scale, Communicator* communicator,
                    const std::function<Status(NcclReduce)>& enqueue) {
  communicator_ = communicator;
  return communicator->Make([&] {
    NcclReduce reduce = NcclReduce::kSum;
    FRD_RETURN_IF_ERROR(MakeReduction(work, scale, &reduce));
    return AsGroup([&] { return enqueue(reduce); });
  });
}

Status Calls::Begin(Communicator* communicator, const std::function<Status()>& enqueue) {
  communicator_ = communicator;
  return communicator->Make([&] { return AsGroup(enqueue); });
}

Status Calls::AsGroup(const std::function<Status()>& enqueue) {
  FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.group_start));
  const Status enqueued = enqueue();
  const Status ended = communicator_->Call(nccl_.group_end);  // in any case
  return enqueued.ok() ? ended : enqueued;
}

Status Calls::MakeReduction(const Work& work, const Scale& scale, NcclReduce* reduce) {
  if (!Reduces(work.kind)) return Status::Ok();
  *reduce = NcclReduceOf(work.dtype, work.reduce);
  if (!IsFloating(work.dtype) || scale.IsIdentity()) return Status::Ok();
  NcclFactor factor = FactorOf(work.dtype, scale);
  FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.make_scaled_sum, reduce, static_cast<void*>(factor.bytes),
                                          NcclTypeOf(work.dtype), kNcclScalarOfHost, communicator_->handle()));
  scaled_sum_ = *reduce;
  return Status::Ok();
}

Status Calls::End() {
  if (!scaled_sum_) return Status::Ok();
  const NcclReduce made = *scaled_sum_;
  scaled_sum_.reset();
  return communicator_->Make([&] { return communicator_->Call(nccl_.destroy_reduce, made, communicator_->handle()); });
}

}  // namespace farandole
