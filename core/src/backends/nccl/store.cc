#include "backends/nccl/store.h"

namespace farandole {

Store::~Store() {
  for (std::byte* memory : taken_) (device_->*free_)(memory);
}

Status Store::Take(size_t size_bytes) {
  if (size_bytes <= size_bytes_) return Status::Ok();
  const size_t doubled_bytes = 2 * size_bytes_;
  if (doubled_bytes > size_bytes && Add(doubled_bytes).ok()) return Status::Ok();
  return Add(size_bytes);
}

Status Store::Add(size_t size_bytes) {
  void* memory = nullptr;
  FRD_RETURN_IF_ERROR((device_->*allocate_)(size_bytes, &memory));
  taken_.push_back(static_cast<std::byte*>(memory));
  size_bytes_ = size_bytes;
  return Status::Ok();
}

}  // namespace farandole
