#include "backends/nccl/launch.h"

#include <algorithm>

#include "backends/nccl/meaning.h"
#include "backends/nccl/rows.h"

namespace farandole {

Status Launch::Begin(const Work& work, Communicator* communicator, Lane* lane) {
  communicator_ = communicator;
  lane_ = lane;
  FRD_RETURN_IF_ERROR(TakeMemoryOfNobody(work));
  FRD_RETURN_IF_ERROR(AwaitInputs(work));
  return lane->device()->Within([&] { return Enqueue(work); });
}

Status Launch::AwaitInputs(const Work& work) const {
  for (const Segment& segment : work.segments) {
    if (segment.ready_event == nullptr) continue;
    FRD_RETURN_IF_ERROR(lane_->device()->WaitInStream(lane_->stream(), segment.ready_event));
  }
  return Status::Ok();
}

// A rank has joined when it has joined for all segments.
Status Launch::TakeMemoryOfNobody(const Work& work) const {
  const auto lacks_memory = [](const Segment& segment) { return segment.output == nullptr; };
  const bool lacks = std::any_of(work.segments.begin(), work.segments.end(), lacks_memory);
  const size_t wanted_bytes = work.TotalBytes() + (MovesRows(work.kind) ? ResultBytes(work) : 0);
  return lacks && wanted_bytes > 0 ? lane_->TakeZeros(wanted_bytes) : Status::Ok();
}

Status Launch::Enqueue(const Work& work) {
  NcclReduce reduce = ReduceOf(work.dtype, work.reduce);
  const bool reduces = work.kind == OpKind::kAllreduce || work.kind == OpKind::kReducescatter;
  const bool scales = reduces && IsFloating(work.dtype) && !work.scale.IsIdentity();
  if (scales) {
    NcclFactor factor = FactorOf(work.dtype, work.scale);
    FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.make_scaled_sum, &reduce, static_cast<void*>(factor.bytes),
                                            TypeOf(work.dtype), kNcclScalarOfHost, communicator_->handle()));
    scaled_sum_ = reduce;
  }
  FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.group_start));
  const Status enqueued = MovesRows(work.kind) ? EnqueueRows(work, reduce) : EnqueueEach(work, reduce);
  const Status ended = communicator_->Call(nccl_.group_end);  // in any case
  return enqueued.ok() ? ended : enqueued;
}

Status Launch::EnqueueEach(const Work& work, NcclReduce reduce) const {
  std::byte* nobodys = lane_->zeros();
  for (const Segment& segment : work.segments) {
    if (segment.size_bytes == 0) continue;
    const void* const from = segment.input != nullptr ? segment.input : nobodys;
    void* const to = segment.output != nullptr ? segment.output : nobodys;
    if (segment.output == nullptr) nobodys += segment.size_bytes;
    if (work.kind == OpKind::kBroadcast) {
      FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.broadcast, from, to, segment.size_bytes, NcclType::kUint8,
                                              work.root, communicator_->handle(), lane_->stream()));
    } else {
      FRD_RETURN_IF_ERROR(communicator_->Call(nccl_.all_reduce, from, to, segment.size_bytes / SizeOf(work.dtype),
                                              TypeOf(work.dtype), reduce, communicator_->handle(), lane_->stream()));
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
  if (work.kind == OpKind::kAllgather) return rows.Gather();
  return work.kind == OpKind::kAlltoall ? rows.Exchange() : rows.Scatter(reduce);
}

Status Launch::End() {
  if (!scaled_sum_) return Status::Ok();
  const NcclReduce made = *scaled_sum_;
  scaled_sum_.reset();
  return lane_->device()->Within(
      [&] { return communicator_->Call(nccl_.destroy_reduce, made, communicator_->handle()); });
}

}  // namespace farandole
