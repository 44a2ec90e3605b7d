#include "backends/nccl/lane.h"

#include <algorithm>

namespace farandole {

Lane::~Lane() {
  if (is_left_) return;
  for (std::byte* memory : zeros_) device_->Free(memory);
  if (event_ != nullptr) device_->DestroyEvent(event_);
  if (stream_ != nullptr) device_->DestroyStream(stream_);
}

Status Lane::Open() {
  FRD_RETURN_IF_ERROR(device_->CreateStream(&stream_));
  return device_->CreateEvent(&event_);
}

// Memory that has become too small is kept: freeing waits for the device, which may wait for another rank, and that
// for us. It at least doubles, so what is kept is less than what is used.
Status Lane::TakeZeros(size_t size_bytes) {
  if (size_bytes > zeros_bytes_) {
    const size_t wanted_bytes = std::max(size_bytes, 2 * zeros_bytes_);
    void* memory = nullptr;
    FRD_RETURN_IF_ERROR(device_->Allocate(wanted_bytes, &memory));
    zeros_.push_back(static_cast<std::byte*>(memory));
    zeros_bytes_ = wanted_bytes;
  }
  return device_->Zero(zeros(), size_bytes, stream_);
}

}  // namespace farandole
