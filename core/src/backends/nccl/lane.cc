#include "backends/nccl/lane.h"

namespace farandole {

Lane::~Lane() {
  if (is_left_) return;
  if (event_ != nullptr) device_->DestroyEvent(event_);
  if (stream_ != nullptr) device_->DestroyStream(stream_);
}

Status Lane::Open() {
  FRD_RETURN_IF_ERROR(device_->CreateStream(&stream_));
  return device_->CreateEvent(&event_);
}

Status Lane::TakeZeros(size_t size_bytes) {
  FRD_RETURN_IF_ERROR(zeros_.Take(size_bytes));
  return device_->Zero(zeros(), size_bytes, stream_);
}

void Lane::Leave() {
  is_left_ = true;
  for (Store* store : {&zeros_, &room_, &pinned_}) store->Leave();
}

}  // namespace farandole
