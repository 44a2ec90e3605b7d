// Works whose tensors lie on (fake) CUDA devices.
#pragma once

#include <cstring>
#include <mutex>
#include <vector>

#include "backends/performed.h"
#include "device/cuda.h"
#include "support/fake_cuda.h"

namespace farandole::tests {

// Memory of the fake devices. It is freed when all ranks have ended: freeing waits for the device, which ranks share
// here, so for works of other ranks, which may wait for this one.
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

// The tensors of a work, brought to a device and, on its end, back.
class OnDevice {
 public:
  OnDevice(Memories& memories, int ordinal, const Task& on_host) : memories_(memories), host_(on_host), task_(on_host) {
    for (Segment& segment : task_.segments) {
      const bool in_place = segment.input == segment.output;
      segment.input = Move(ordinal, segment.input, segment.size_bytes);
      segment.output =
          in_place ? const_cast<void*>(segment.input) : Move(ordinal, segment.output, OutputBytes(segment));
      if (segment.input != nullptr) FindCudaDevice(FakeCudaPath(), segment.input, &segment.device);
    }
  }
  const Task& task() const { return task_; }
  Task& task() { return task_; }
  void CopyBack() const {
    for (size_t i = 0; i < task_.segments.size(); ++i) {
      const Segment& segment = host_.segments[i];
      if (segment.output == nullptr || OutputBytes(segment) == 0) continue;
      std::memcpy(segment.output, memories_.cuda().Contents(task_.segments[i].output), OutputBytes(segment));
    }
  }

 private:
  size_t OutputBytes(const Segment& segment) const {
    return AllocatesOutput(host_.kind) ? host_.ResultBytes() : segment.size_bytes;
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
