#include "backends/nccl/stream.h"

namespace farandole {

// ---- DeviceScratch

DeviceScratch::~DeviceScratch() {
  for (std::byte* memory : taken_) (device_->*free_)(memory);
}

// Takes twice as much where the device has room, else no more than is needed.
Status DeviceScratch::Take(size_t size_bytes) {
  if (size_bytes <= size_bytes_) return Status::Ok();
  const size_t doubled_bytes = 2 * size_bytes_;
  if (doubled_bytes > size_bytes && Add(doubled_bytes).ok()) return Status::Ok();
  return Add(size_bytes);
}

Status DeviceScratch::Add(size_t size_bytes) {
  void* memory = nullptr;
  FRD_RETURN_IF_ERROR((device_->*allocate_)(size_bytes, &memory));
  taken_.push_back(static_cast<std::byte*>(memory));
  size_bytes_ = size_bytes;
  return Status::Ok();
}

// ---- DeviceStream

DeviceStream::~DeviceStream() {
  if (is_left_) return;
  if (event_ != nullptr) device_->DestroyEvent(event_);
  if (stream_ != nullptr) device_->DestroyStream(stream_);
}

Status DeviceStream::Open() {
  FRD_RETURN_IF_ERROR(device_->CreateStream(&stream_));
  return device_->CreateEvent(&event_);
}

Status DeviceStream::TakeZeros(size_t size_bytes) {
  FRD_RETURN_IF_ERROR(zeros_.Take(size_bytes));
  return device_->Zero(zeros(), size_bytes, stream_);
}

void DeviceStream::Leave() {
  is_left_ = true;
  for (DeviceScratch* scratch : {&zeros_, &on_device_, &pinned_}) scratch->Leave();
}

// ---- a task's tensors

Status AwaitInputs(const Task& task, DeviceStream* stream) {
  for (const IoBuffer& buffer : task.buffers) {
    if (buffer.ready_event == nullptr) continue;
    FRD_RETURN_IF_ERROR(stream->device()->WaitInStream(stream->stream(), buffer.ready_event));
  }
  return Status::Ok();
}

// A rank that has joined lacks memory for all buffers of the task.
Status TakeJoinedMemory(const Task& task, size_t size_bytes, DeviceStream* stream) {
  const auto lacks_memory = [](const IoBuffer& buffer) { return buffer.output == nullptr; };
  const bool lacks = std::any_of(task.buffers.begin(), task.buffers.end(), lacks_memory);
  return lacks && size_bytes > 0 ? stream->TakeZeros(size_bytes) : Status::Ok();
}

// A joined rank's tensors lie in the zeros one after the other, since a fused group of calls must not write the same
// memory twice.
Status FindTensors(const Task& task, DeviceStream* stream, std::vector<IoBuffer>* tensors) {
  FRD_RETURN_IF_ERROR(TakeJoinedMemory(task, task.TotalBytes(), stream));
  tensors->clear();
  std::byte* zeros = stream->zeros();
  for (IoBuffer buffer : task.buffers) {
    if (buffer.size_bytes == 0) continue;
    if (buffer.input == nullptr) buffer.input = buffer.output != nullptr ? buffer.output : zeros;
    if (buffer.output == nullptr) {
      buffer.output = zeros;
      zeros += buffer.size_bytes;
    }
    tensors->push_back(buffer);
  }
  return Status::Ok();
}

}  // namespace farandole
