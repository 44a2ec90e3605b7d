#include "backends/nccl/store.h"

#include <algorithm>

namespace farandole {

Store::~Store() {
  for (std::byte* memory : taken_) (device_->*free_)(memory);
}

Status Store::Take(size_t size_bytes) {
  if (size_bytes <= size_bytes_) return Status::Ok();
  const size_t wanted_bytes = std::max(size_bytes, 2 * size_bytes_);
  void* memory = nullptr;
  FRD_RETURN_IF_ERROR((device_->*allocate_)(wanted_bytes, &memory));
  taken_.push_back(static_cast<std::byte*>(memory));
  size_bytes_ = wanted_bytes;
  return Status::Ok();
}

}  // namespace farandole
