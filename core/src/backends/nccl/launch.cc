#include "backends/nccl/launch.h"

#include <algorithm>
#include <utility>

namespace farandole {

// ---- DeviceStream

DeviceStream::~DeviceStream() {
  if (is_left_) return;
  for (void* memory : zeros_) device_->Free(memory);
  if (event_ != nullptr) device_->DestroyEvent(event_);
  if (stream_ != nullptr) device_->DestroyStream(stream_);
}

Status DeviceStream::Open() {
  FRD_RETURN_IF_ERROR(device_->CreateStream(&stream_));
  return device_->CreateEvent(&event_);
}

// Takes twice as much as before where the device has room, else no more than is needed.
Status DeviceStream::TakeZeros(size_t size_bytes, std::byte** zeros) {
  if (size_bytes > zeros_bytes_) {
    void* memory = nullptr;
    const size_t doubled_bytes = std::max(size_bytes, 2 * zeros_bytes_);
    const bool has_room = doubled_bytes > size_bytes && device_->Allocate(doubled_bytes, &memory).ok();
    if (!has_room) FRD_RETURN_IF_ERROR(device_->Allocate(size_bytes, &memory));
    zeros_.push_back(memory);
    zeros_bytes_ = has_room ? doubled_bytes : size_bytes;
  }
  *zeros = static_cast<std::byte*>(zeros_.back());
  return device_->Zero(*zeros, size_bytes, stream_);
}

// ---- LaunchTask

namespace {

bool AllEqual(const std::vector<size_t>& sizes) {
  return std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
}

// The calls of one task, made in the communicator's thread. They may outlast the task, so this is a copy of all that
// they use.
struct TaskCalls {
  Status Make() const {
    NcclReduce reduction = NcclReduceOf(task.dtype, task.reduce);
    if (scaled_sum) {
      NcclFactor factor = FactorOf(task.dtype, task.scale);
      FRD_RETURN_IF_ERROR(communicator->Call(nccl.make_scaled_sum, scaled_sum.get(), static_cast<void*>(factor.bytes),
                                             NcclTypeOf(task.dtype), kNcclScalarOfHost, communicator->handle()));
      reduction = *scaled_sum;
    }
    FRD_RETURN_IF_ERROR(communicator->Call(nccl.group_start));
    // Ends the group in any case, since NCCL would take the thread's next calls for a part of it.
    const Status enqueued = Enqueue(reduction);
    const Status ended = communicator->Call(nccl.group_end);
    return enqueued.ok() ? ended : enqueued;
  }

  Status Enqueue(NcclReduce reduction) const {
    switch (task.kind) {
      case OpKind::kAllreduce:
        return Reduce(reduction);
      case OpKind::kBroadcast:
        return Broadcast();
      case OpKind::kAllgather:
        return Gather();
      case OpKind::kAlltoall:
        return Exchange();
      default:
        return Scatter(reduction);
    }
  }

  Status Reduce(NcclReduce reduction) const {
    for (const IoBuffer& tensor : tensors) {
      FRD_RETURN_IF_ERROR(Call(nccl.all_reduce, tensor.input, tensor.output, tensor.size_bytes / SizeOf(task.dtype),
                               NcclTypeOf(task.dtype), reduction));
    }
    return Status::Ok();
  }

  Status Broadcast() const {
    for (const IoBuffer& tensor : tensors) {
      FRD_RETURN_IF_ERROR(
          Call(nccl.broadcast, tensor.input, tensor.output, tensor.size_bytes, NcclType::kUint8, task.root));
    }
    return Status::Ok();
  }

  // Where parts differ, each rank broadcasts its own. A rank's own part is sent from its input.
  Status Gather() const {
    if (AllEqual(task.rank_bytes)) return Call(nccl.all_gather, from(), to(), task.rank_bytes[0], NcclType::kUint8);
    return ForEachPart([this](int position, size_t begin, size_t size_bytes) {
      const std::byte* const source = position == my_position ? from() : to() + begin;
      return Call(nccl.broadcast, source, to() + begin, size_bytes, NcclType::kUint8, position);
    });
  }

  // NCCL has no alltoall. Sends and receives of one group run at the same time, so their order cannot block.
  Status Exchange() const {
    size_t sent = 0, received = 0;
    for (size_t p = 0; p < task.send_bytes.size(); ++p) {
      const auto peer = static_cast<int>(p);
      if (task.send_bytes[p] > 0)
        FRD_RETURN_IF_ERROR(Call(nccl.send, from() + sent, task.send_bytes[p], NcclType::kUint8, peer));
      if (task.recv_bytes[p] > 0)
        FRD_RETURN_IF_ERROR(Call(nccl.receive, to() + received, task.recv_bytes[p], NcclType::kUint8, peer));
      sent += task.send_bytes[p];
      received += task.recv_bytes[p];
    }
    return Status::Ok();
  }

  // Where parts differ, one reduction goes to each rank: NCCL writes the output only on its root.
  Status Scatter(NcclReduce reduction) const {
    const NcclType type = NcclTypeOf(task.dtype);
    const size_t item_bytes = SizeOf(task.dtype);
    if (AllEqual(task.rank_bytes))
      return Call(nccl.reduce_scatter, from(), to(), task.rank_bytes[0] / item_bytes, type, reduction);
    return ForEachPart([&](int position, size_t begin, size_t size_bytes) {
      return Call(nccl.reduce, from() + begin, to(), size_bytes / item_bytes, type, reduction, position);
    });
  }

  // Calls visit(position, where its part begins, size) for the parts of all positions, until one fails.
  template <typename Visit>
  Status ForEachPart(const Visit& visit) const {
    size_t begin = 0;
    for (size_t p = 0; p < task.rank_bytes.size(); begin += task.rank_bytes[p++]) {
      if (task.rank_bytes[p] > 0) FRD_RETURN_IF_ERROR(visit(static_cast<int>(p), begin, task.rank_bytes[p]));
    }
    return Status::Ok();
  }

  template <typename Signature, typename... Arguments>
  Status Call(const NcclFunction<Signature>& function, Arguments... arguments) const {
    return communicator->Call(function, arguments..., communicator->handle(), stream);
  }
  const std::byte* from() const { return static_cast<const std::byte*>(tensors[0].input); }
  std::byte* to() const { return static_cast<std::byte*>(tensors[0].output); }

  const NcclLibrary& nccl;
  Communicator* communicator;  // it lives as long as its calls
  Stream stream;
  Task task;  // its set may be gone
  int my_position;
  std::vector<IoBuffer> tensors;           // those that move something, with memory for input and output
  std::shared_ptr<NcclReduce> scaled_sum;  // where the reduction is made for this task
};

// A rank that has joined lacks memory for all buffers of the task: its inputs are zeros. Its results go behind them, or
// over them where a tensor is reduced in place; there every tensor has its own zeros, since a group of calls must not
// write the same memory twice.
Status FindTensors(const Task& task, DeviceStream* stream, std::vector<IoBuffer>* tensors) {
  const bool in_place = !AllocatesOutput(task.kind);
  const size_t size_bytes = task.TotalBytes() + (in_place ? 0 : task.ResultBytes());
  const auto lacks_memory = [](const IoBuffer& buffer) { return buffer.output == nullptr; };
  std::byte* zeros = nullptr;
  if (size_bytes > 0 && std::any_of(task.buffers.begin(), task.buffers.end(), lacks_memory))
    FRD_RETURN_IF_ERROR(stream->TakeZeros(size_bytes, &zeros));
  for (IoBuffer buffer : task.buffers) {
    if (in_place && buffer.size_bytes == 0) continue;
    if (buffer.input == nullptr) buffer.input = buffer.output != nullptr ? buffer.output : zeros;
    if (buffer.output == nullptr) {
      buffer.output = in_place ? zeros : zeros + buffer.size_bytes;
      zeros += buffer.size_bytes;
    }
    tensors->push_back(buffer);
  }
  return Status::Ok();
}

}  // namespace

Status LaunchTask(const NcclLibrary& nccl, const Task& task, Communicator* communicator, DeviceStream* stream,
                  std::shared_ptr<NcclReduce>* scaled_sum) {
  const bool scales = Reduces(task.kind) && IsFloating(task.dtype) && !task.scale.IsIdentity();
  *scaled_sum = scales ? std::make_shared<NcclReduce>() : nullptr;
  TaskCalls calls{nccl, communicator, stream->stream(), task, task.set->position, {}, *scaled_sum};
  FRD_RETURN_IF_ERROR(FindTensors(task, stream, &calls.tensors));
  for (const IoBuffer& buffer : task.buffers) {
    if (buffer.ready_event != nullptr)
      FRD_RETURN_IF_ERROR(stream->device()->WaitInStream(stream->stream(), buffer.ready_event));
  }
  communicator->Make([calls = std::move(calls)] { return calls.Make(); });
  return Status::Ok();
}

}  // namespace farandole
