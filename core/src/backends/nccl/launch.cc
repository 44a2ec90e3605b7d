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
  return calls_.Begin(work, work.scale, communicator, [&](const NcclReduction& reduction, CallList* calls) {
    AllocatesOutput(work.kind) ? ListRows(work, reduction, calls) : ListEach(work, reduction, calls);
  });
}

Status Launch::TakeMemory(const Work& work) {
  if (!AllocatesOutput(work.kind)) return FindTensors(work, lane_, &tensors_);
  return TakeMemoryOfNobody(work, work.TotalBytes() + work.ResultBytes(), lane_);
}

void Launch::ListEach(const Work& work, const NcclReduction& reduction, CallList* calls) const {
  const NcclComm comm = communicator_->handle();
  for (const Segment& tensor : tensors_) {
    if (OnlyRootSends(work.kind)) {
      calls->Add(nccl_.broadcast, tensor.input, tensor.output, tensor.size_bytes, NcclType::kUint8, work.root, comm,
                 lane_->stream());
    } else {
      calls->Add(nccl_.all_reduce, tensor.input, tensor.output, tensor.size_bytes / SizeOf(work.dtype),
                 NcclTypeOf(work.dtype), reduction, comm, lane_->stream());
    }
  }
}

// Nobody's input is zeros, and its result goes behind them.
void Launch::ListRows(const Work& work, const NcclReduction& reduction, CallList* calls) const {
  const Segment& segment = work.segments[0];
  const Rows rows{
      nccl_,
      communicator_->handle(),
      work,
      lane_->stream(),
      segment.input != nullptr ? static_cast<const std::byte*>(segment.input) : lane_->zeros(),
      segment.output != nullptr ? static_cast<std::byte*>(segment.output) : lane_->zeros() + segment.size_bytes,
      calls};
  if (Reduces(work.kind)) return rows.Scatter(reduction);
  TakesSplits(work.kind) ? rows.Exchange() : rows.Gather();
}

}  // namespace farandole
