#include "backends/nccl/launch.h"

#include "backends/nccl/meaning.h"
#include "backends/nccl/rows.h"
#include "backends/nccl/tensors.h"

namespace farandole {

Status Launch::Begin(const Work& work, Communicator* communicator, Lane* lane) {
  communicator_ = communicator;
  lane_ = lane;
  FRD_RETURN_IF_ERROR(TakeMemory(work));
  FRD_RETURN_IF_ERROR(AwaitInputs(work, lane));
  return calls_.Begin(work, work.scale, communicator, [&](NcclReduce reduce) {
    return AllocatesOutput(work.kind) ? EnqueueRows(work, reduce) : EnqueueEach(work, reduce);
  });
}

Status Launch::TakeMemory(const Work& work) {
  if (!AllocatesOutput(work.kind)) return FindTensors(work, lane_, &tensors_);
  return TakeMemoryOfNobody(work, work.TotalBytes() + work.ResultBytes(), lane_);
}

Status Launch::EnqueueEach(const Work& work, NcclReduce reduce) const {
  for (const Segment& tensor : tensors_) {
    if (HasRoot(work.kind)) {
      FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.broadcast, tensor.input, tensor.output, tensor.size_bytes,
                                              NcclType::kUint8, work.root, communicator_->handle(), lane_->stream()));
    } else {
      FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.all_reduce, tensor.input, tensor.output,
                                              tensor.size_bytes / SizeOf(work.dtype), NcclTypeOf(work.dtype), reduce,
                                              communicator_->handle(), lane_->stream()));
    }
  }
  return Status::Ok();
}

// Nobody's input is zeros, and its result goes behind them.
Status Launch::EnqueueRows(const Work& work, NcclReduce reduce) const {
  const Segment& segment = work.segments[0];
  const Rows rows{
      nccl_,
      *communicator_,
      work,
      lane_->stream(),
      segment.input != nullptr ? static_cast<const std::byte*>(segment.input) : lane_->zeros(),
      segment.output != nullptr ? static_cast<std::byte*>(segment.output) : lane_->zeros() + segment.size_bytes};
  if (Reduces(work.kind)) return rows.Scatter(reduce);
  return TakesSplits(work.kind) ? rows.Exchange() : rows.Gather();
}

}  // namespace farandole
