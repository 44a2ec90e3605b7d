// The parts of a device that its tasks use, and their tensors as NCCL's calls take them.
//
//   DeviceScratch          memory that is kept from one task to the next
//   DeviceStream     a stream, an event behind the last task, and scratch
//
// The NCCL backend owns one DeviceStream for each device. Only the holder of the ProgressLock uses what is here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "algorithms/schedule.h"
#include "collectives/task.h"
#include "device/device.h"

namespace farandole {

// Memory of a device, or pinned for it. Memory that has become too small is kept, too: freeing it waits for the device,
// which may wait for another rank, and that for this one. The size at least doubles while there is room, so the kept
// memory is smaller than the used one.
class DeviceScratch {
 public:
  using Allocate = Status (Device::*)(size_t size_bytes, void** memory);
  using Free = void (Device::*)(void* memory);

  DeviceScratch(Device* device, Allocate allocate, Free free) : device_(device), allocate_(allocate), free_(free) {}
  ~DeviceScratch();
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Makes sure that there are at least size_bytes, of any contents. REQUIRES: the task before is over.
  Status Take(size_t size_bytes);
  std::byte* memory() const { return taken_.empty() ? nullptr : taken_.back(); }
  // Frees nothing, since the device has not ended its work and may still use it.
  void Leave() { taken_.clear(); }

 private:
  Status Add(size_t size_bytes);

  Device* const device_;
  const Allocate allocate_;
  const Free free_;
  std::vector<std::byte*> taken_;  // the last is the largest
  size_t size_bytes_ = 0;          // of the last
};

class DeviceStream {
 public:
  explicit DeviceStream(Device* device) : device_(device) {}
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  Status Open();

  // Takes at least size_bytes and zeroes them in the stream. They stand in for the memory of ranks that have joined.
  // REQUIRES: the task before is over.
  Status TakeZeros(size_t size_bytes);
  std::byte* zeros() const { return zeros_.memory(); }
  DeviceScratch& on_device() { return on_device_; }
  DeviceScratch& pinned() { return pinned_; }
  // Records the event after all work that the stream has now.
  Status Mark() { return device_->Record(event_, stream_); }
  Status HasPassed(bool* passed) { return device_->HasHappened(event_, passed); }
  // The device has not ended its work, so nothing that it may still use is freed.
  void Leave();

  Device* device() const { return device_; }
  Stream stream() const { return stream_; }

 private:
  Device* const device_;
  Stream stream_ = nullptr;
  Event event_ = nullptr;
  DeviceScratch zeros_{device_, &Device::Allocate, &Device::Free};
  DeviceScratch on_device_{device_, &Device::Allocate, &Device::Free};
  DeviceScratch pinned_{device_, &Device::AllocatePinned, &Device::FreePinned};
  bool is_left_ = false;
};

// ---- a task's tensors

// Makes the stream wait for every tensor's ready event.
Status AwaitInputs(const Task& task, DeviceStream* stream);

// Takes size_bytes of the stream's zeros where this rank has joined, in place of its memory. Does nothing elsewhere.
Status TakeJoinedMemory(const Task& task, size_t size_bytes, DeviceStream* stream);

// Finds, for an allreduce or a broadcast, every tensor that has elements, with memory for input and output.
Status FindTensors(const Task& task, DeviceStream* stream, std::vector<IoBuffer>* tensors);

// Calls visit(tensor, where in it, where in the range, size) for the parts of a range of the vector of all tensors, in
// bytes, until one fails.
template <typename Visit>
Status ForEachPart(const std::vector<IoBuffer>& tensors, Range range, Visit visit) {
  const auto range_begin = static_cast<size_t>(range.begin), range_end = static_cast<size_t>(range.end);
  size_t tensor_begin = 0;
  for (const IoBuffer& tensor : tensors) {
    const size_t begin = std::max(tensor_begin, range_begin);
    const size_t end = std::min(tensor_begin + tensor.size_bytes, range_end);
    if (begin < end) FRD_RETURN_IF_ERROR(visit(tensor, begin - tensor_begin, begin - range_begin, end - begin));
    tensor_begin += tensor.size_bytes;
  }
  return Status::Ok();
}

}  // namespace farandole
