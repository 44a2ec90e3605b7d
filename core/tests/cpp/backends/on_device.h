// Tasks whose tensors lie on (fake) CUDA devices.
#pragma once

#include <cstring>
#include <mutex>
#include <vector>

#include "backends/performed.h"
#include "device/device.h"
#include "support/fake_cuda.h"

namespace farandole::tests {

// Memory of the fake devices. It is freed when all ranks have ended: freeing waits for the device, which ranks share
// here, and so for tasks of other ranks, which may wait for this one.
class Memories {
 public:
  explicit Memories(FakeCuda& cuda) : cuda_(cuda) {}
  ~Memories() {
    for (void* memory : taken_) cuda_.Free(memory);
  }
  Memories(const Memories&) = delete;
  Memories& operator=(const Memories&) = delete;
  void* Take(int ordinal, size_t size_bytes) {
    void* const memory = cuda_.Allocate(ordinal, size_bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    taken_.push_back(memory);
    return memory;
  }
  FakeCuda& cuda() { return cuda_; }

 private:
  FakeCuda& cuda_;
  std::mutex mutex_;
  std::vector<void*> taken_;
};

// The tensors of a task, copied to a device and, at the end, back.
class OnDevice {
 public:
  OnDevice(Memories& memories, int ordinal, const Task& on_host) : memories_(memories), host_(on_host), task_(on_host) {
    for (IoBuffer& buffer : task_.buffers) {
      const bool in_place = buffer.input == buffer.output;
      buffer.input = Move(ordinal, buffer.input, buffer.size_bytes);
      buffer.output = in_place ? const_cast<void*>(buffer.input) : Move(ordinal, buffer.output, OutputBytes(buffer));
      if (buffer.input != nullptr) Devices(FakeCudaPath()).Find(DeviceKind::kCuda, buffer.input, &buffer.device);
    }
  }
  const Task& task() const { return task_; }
  Task& task() { return task_; }
  void CopyBack() const {
    for (size_t i = 0; i < task_.buffers.size(); ++i) {
      const IoBuffer& buffer = host_.buffers[i];
      if (buffer.output == nullptr || OutputBytes(buffer) == 0) continue;
      std::memcpy(buffer.output, memories_.cuda().Contents(task_.buffers[i].output), OutputBytes(buffer));
    }
  }

 private:
  size_t OutputBytes(const IoBuffer& buffer) const {
    return AllocatesOutput(host_.kind) ? host_.ResultBytes() : buffer.size_bytes;
  }
  void* Move(int ordinal, const void* from, size_t size_bytes) {
    if (from == nullptr) return nullptr;
    void* const memory = memories_.Take(ordinal, size_bytes + 1);
    std::memcpy(memories_.cuda().Contents(memory), from, size_bytes);
    return memory;
  }

  Memories& memories_;
  const Task& host_;
  Task task_;
};

}  // namespace farandole::tests
