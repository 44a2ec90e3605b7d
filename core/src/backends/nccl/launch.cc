#include "backends/nccl/launch.h"

#include "backends/nccl/meaning.h"
#include "backends/nccl/rows.h"
#include "backends/nccl/tensors.h"

namespace farandole {

Status Launch::Begin(const Task& task, Communicator* communicator, Lane* lane) {
  communicator_ = communicator;
  lane_ = lane;
  FRD_RETURN_IF_ERROR(TakeMemory(task));
  FRD_RETURN_IF_ERROR(AwaitInputs(task, lane));
  return calls_.Begin(task, task.scale, communicator, [&](const NcclReduction& reduction, CallList* calls) {
    AllocatesOutput(task.kind) ? ListRows(task, reduction, calls) : ListEach(task, reduction, calls);
  });
}

Status Launch::TakeMemory(const Task& task) {
  if (!AllocatesOutput(task.kind)) return FindTensors(task, lane_, &tensors_);
  return TakeMemoryOfNobody(task, task.TotalBytes() + task.ResultBytes(), lane_);
}

void Launch::ListEach(const Task& task, const NcclReduction& reduction, CallList* calls) const {
  const NcclComm comm = communicator_->handle();
  for (const Segment& tensor : tensors_) {
    if (OnlyRootSends(task.kind)) {
      calls->Add(nccl_.broadcast, tensor.input, tensor.output, tensor.size_bytes, NcclType::kUint8, task.root, comm,
                 lane_->stream());
    } else {
      calls->Add(nccl_.all_reduce, tensor.input, tensor.output, tensor.size_bytes / SizeOf(task.dtype),
                 NcclTypeOf(task.dtype), reduction, comm, lane_->stream());
    }
  }
}

// Nobody's input is zeros, and its result goes behind them.
void Launch::ListRows(const Task& task, const NcclReduction& reduction, CallList* calls) const {
  const Segment& segment = task.segments[0];
  const Rows rows{
      nccl_,
      communicator_->handle(),
      task,
      lane_->stream(),
      segment.input != nullptr ? static_cast<const std::byte*>(segment.input) : lane_->zeros(),
      segment.output != nullptr ? static_cast<std::byte*>(segment.output) : lane_->zeros() + segment.size_bytes,
      calls};
  if (Reduces(task.kind)) return rows.Scatter(reduction);
  TakesSplits(task.kind) ? rows.Exchange() : rows.Gather();
}

}  // namespace farandole
