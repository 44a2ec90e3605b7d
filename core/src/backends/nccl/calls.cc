#include "backends/nccl/calls.h"

#include <algorithm>
#include <utility>

namespace farandole {

// ---- CallList, Calls

namespace {

bool IsScaled(const Task& task, const Scale& scale) {
  return Reduces(task.kind) && IsFloating(task.dtype) && !scale.IsIdentity();
}

// Ends a group that was begun in any case, since NCCL would take the thread's next calls for a part of it.
Status MakeAsGroup(const NcclLibrary& nccl, Communicator* communicator, const CallList& list) {
  FRD_RETURN_IF_ERROR(communicator->Call(nccl.group_start));
  const Status enqueued = list.Make(communicator);
  const Status ended = communicator->Call(nccl.group_end);
  return enqueued.ok() ? ended : enqueued;
}

}  // namespace

Status CallList::Make(Communicator* communicator) const {
  for (const Entry& entry : calls_) FRD_RETURN_IF_ERROR(communicator->Called(entry.name, entry.call));
  return Status::Ok();
}

void Calls::Begin(const Task& task, const Scale& scale, Communicator* communicator,
                  const std::function<void(const NcclReduction&, CallList*)>& list) {
  const auto reduction = std::make_shared<NcclReduce>(NcclReduceOf(task.dtype, task.reduce));
  CallThread::Call make_sum = [] { return Status::Ok(); };
  if (IsScaled(task, scale)) {
    scaled_sum_ = reduction;
    make_sum = [&nccl = nccl_, communicator, reduction, type = NcclTypeOf(task.dtype),
                factor = FactorOf(task.dtype, scale)]() mutable {
      return communicator->Call(nccl.make_scaled_sum, reduction.get(), static_cast<void*>(factor.bytes), type,
                                kNcclScalarOfHost, communicator->handle());
    };
  }
  Begin(communicator, std::move(make_sum), [&](CallList* calls) { list(reduction, calls); });
}

void Calls::Begin(Communicator* communicator, const std::function<void(CallList*)>& list) {
  Begin(communicator, [] { return Status::Ok(); }, list);
}

void Calls::Begin(Communicator* communicator, CallThread::Call first, const std::function<void(CallList*)>& list) {
  communicator_ = communicator;
  CallList calls;
  list(&calls);
  communicator->Make([&nccl = nccl_, communicator, first = std::move(first), calls = std::move(calls)] {
    FRD_RETURN_IF_ERROR(first());
    return MakeAsGroup(nccl, communicator, calls);
  });
}

void Calls::End() {
  if (!scaled_sum_) return;
  const NcclReduce made = *std::exchange(scaled_sum_, nullptr);
  communicator_->Make([&nccl = nccl_, communicator = communicator_, made] {
    return communicator->Call(nccl.destroy_reduce, made, communicator->handle());
  });
}

// ---- Launch

namespace {

bool AllEqual(const std::vector<size_t>& sizes) {
  return std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
}

// Collectives along the first dimension.
struct Rows {
  // allgather
  // Where parts differ, each rank broadcasts its own. A rank's own part is sent from its input.
  void Gather() const {
    if (AllEqual(task.rank_bytes))
      return calls->Add(nccl.all_gather, from, to, task.rank_bytes[0], NcclType::kUint8, comm, stream);
    size_t at = 0;
    for (size_t p = 0; p < task.rank_bytes.size(); at += task.rank_bytes[p++]) {
      if (task.rank_bytes[p] == 0) continue;
      const bool is_mine = static_cast<int>(p) == task.set->position;
      calls->Add(nccl.broadcast, is_mine ? from : to + at, to + at, task.rank_bytes[p], NcclType::kUint8,
                 static_cast<int>(p), comm, stream);
    }
  }

  // alltoall
  // NCCL has no alltoall. Sends and receives of one group run at the same time, so their order cannot block.
  void Exchange() const {
    size_t sent = 0, received = 0;
    for (size_t p = 0; p < task.send_bytes.size(); ++p) {
      const auto peer = static_cast<int>(p);
      if (task.send_bytes[p] > 0)
        calls->Add(nccl.send, from + sent, task.send_bytes[p], NcclType::kUint8, peer, comm, stream);
      if (task.recv_bytes[p] > 0)
        calls->Add(nccl.receive, to + received, task.recv_bytes[p], NcclType::kUint8, peer, comm, stream);
      sent += task.send_bytes[p];
      received += task.recv_bytes[p];
    }
  }

  // reducescatter
  // Where parts differ, one reduction goes to each rank: NCCL writes `to` only on its root.
  void Scatter(const NcclReduction& reduction) const {
    const NcclType type = NcclTypeOf(task.dtype);
    const size_t item_bytes = SizeOf(task.dtype);
    if (AllEqual(task.rank_bytes)) {
      return calls->Add(nccl.reduce_scatter, from, to, task.rank_bytes[0] / item_bytes, type, reduction, comm, stream);
    }
    size_t at = 0;
    for (size_t p = 0; p < task.rank_bytes.size(); at += task.rank_bytes[p++]) {
      if (task.rank_bytes[p] == 0) continue;
      calls->Add(nccl.reduce, from + at, to, task.rank_bytes[p] / item_bytes, type, reduction, static_cast<int>(p),
                 comm, stream);
    }
  }

  const NcclLibrary& nccl;
  NcclComm comm;
  const Task& task;
  Stream stream;
  const std::byte* from;
  std::byte* to;
  CallList* calls;
};

}  // namespace

Status Launch::Begin(const Task& task, Communicator* communicator, DeviceStream* stream) {
  communicator_ = communicator;
  stream_ = stream;
  FRD_RETURN_IF_ERROR(TakeMemory(task));
  FRD_RETURN_IF_ERROR(AwaitInputs(task, stream));
  calls_.Begin(task, task.scale, communicator, [&](const NcclReduction& reduction, CallList* calls) {
    AllocatesOutput(task.kind) ? ListRows(task, reduction, calls) : ListEach(task, reduction, calls);
  });
  return Status::Ok();
}

Status Launch::TakeMemory(const Task& task) {
  if (!AllocatesOutput(task.kind)) return FindTensors(task, stream_, &tensors_);
  return TakeJoinedMemory(task, task.TotalBytes() + task.ResultBytes(), stream_);
}

void Launch::ListEach(const Task& task, const NcclReduction& reduction, CallList* calls) const {
  const NcclComm comm = communicator_->handle();
  for (const IoBuffer& tensor : tensors_) {
    if (OnlyRootSends(task.kind)) {
      calls->Add(nccl_.broadcast, tensor.input, tensor.output, tensor.size_bytes, NcclType::kUint8, task.root, comm,
                 stream_->stream());
    } else {
      calls->Add(nccl_.all_reduce, tensor.input, tensor.output, tensor.size_bytes / SizeOf(task.dtype),
                 NcclTypeOf(task.dtype), reduction, comm, stream_->stream());
    }
  }
}

// A joined rank's input is zeros, and its result goes behind them.
void Launch::ListRows(const Task& task, const NcclReduction& reduction, CallList* calls) const {
  const IoBuffer& buffer = task.buffers[0];
  const Rows rows{
      nccl_,
      communicator_->handle(),
      task,
      stream_->stream(),
      buffer.input != nullptr ? static_cast<const std::byte*>(buffer.input) : stream_->zeros(),
      buffer.output != nullptr ? static_cast<std::byte*>(buffer.output) : stream_->zeros() + buffer.size_bytes,
      calls};
  if (Reduces(task.kind)) return rows.Scatter(reduction);
  TakesSplits(task.kind) ? rows.Exchange() : rows.Gather();
}

}  // namespace farandole
