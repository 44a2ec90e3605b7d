#include "backends/nccl/calls.h"

#include <utility>

#include "backends/nccl/meaning.h"

namespace farandole {
namespace {

bool IsScaled(const Task& task, const Scale& scale) {
  return Reduces(task.kind) && IsFloating(task.dtype) && !scale.IsIdentity();
}

Status MakeAsGroup(const NcclLibrary& nccl, Communicator* communicator, const CallList& list) {
  FRD_RETURN_IF_ERROR(communicator->Call(nccl.group_start));
  const Status enqueued = list.Make(communicator);
  const Status ended = communicator->Call(nccl.group_end);  // in any case
  return enqueued.ok() ? ended : enqueued;
}

}  // namespace

Status CallList::Make(Communicator* communicator) const {
  for (const Entry& entry : calls_) FRD_RETURN_IF_ERROR(communicator->Called(entry.name, entry.call));
  return Status::Ok();
}

Status Calls::Begin(const Task& task, const Scale& scale, Communicator* communicator,
                    const std::function<void(const NcclReduction&, CallList*)>& list) {
  const auto reduction = std::make_shared<NcclReduce>(NcclReduceOf(task.dtype, task.reduce));
  Caller::Calls make_sum = [] { return Status::Ok(); };
  if (IsScaled(task, scale)) {
    scaled_sum_ = reduction;
    make_sum = [&nccl = nccl_, communicator, reduction, type = NcclTypeOf(task.dtype),
                factor = FactorOf(task.dtype, scale)]() mutable {
      return communicator->Call(nccl.make_scaled_sum, reduction.get(), static_cast<void*>(factor.bytes), type,
                                kNcclScalarOfHost, communicator->handle());
    };
  }
  return Begin(communicator, std::move(make_sum), [&](CallList* calls) { list(reduction, calls); });
}

Status Calls::Begin(Communicator* communicator, const std::function<void(CallList*)>& list) {
  return Begin(communicator, [] { return Status::Ok(); }, list);
}

Status Calls::Begin(Communicator* communicator, Caller::Calls first, const std::function<void(CallList*)>& list) {
  communicator_ = communicator;
  CallList calls;
  list(&calls);
  return communicator->Make([&nccl = nccl_, communicator, first = std::move(first), calls = std::move(calls)] {
    FRD_RETURN_IF_ERROR(first());
    return MakeAsGroup(nccl, communicator, calls);
  });
}

Status Calls::End() {
  if (!scaled_sum_) return Status::Ok();
  const NcclReduce made = *std::exchange(scaled_sum_, nullptr);
  return communicator_->Make([&nccl = nccl_, communicator = communicator_, made] {
    return communicator->Call(nccl.destroy_reduce, made, communicator->handle());
  });
}

}  // namespace farandole
