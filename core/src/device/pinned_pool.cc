#include "device/pinned_pool.h"

#include <algorithm>

namespace farandole {

PinnedPool::~PinnedPool() {
  for (const PinnedBlock& block : idle_) device_->FreePinned(block.memory);
}

size_t PinnedPool::RoundUp(size_t size_bytes) {
  constexpr size_t kLeast = 64 << 10;
  size_t power = kLeast;
  while (power <= size_bytes / 2) power *= 2;
  const size_t step = power / 4;
  return std::max(kLeast, (size_bytes + step - 1) / step * step);
}

Status PinnedPool::Take(size_t size_bytes, PinnedBlock* block) {
  *block = PinnedBlock();
  if (size_bytes == 0) return Status::Ok();
  const size_t wanted_bytes = RoundUp(size_bytes);
  const auto same = [wanted_bytes](const PinnedBlock& each) { return each.size_bytes == wanted_bytes; };
  if (const auto found = std::find_if(idle_.begin(), idle_.end(), same); found != idle_.end()) {
    *block = *found;
    idle_bytes_ -= found->size_bytes;
    idle_.erase(found);
    return Status::Ok();
  }
  void* memory = nullptr;
  FRD_RETURN_IF_ERROR(device_->AllocatePinned(wanted_bytes, &memory));
  *block = {static_cast<std::byte*>(memory), wanted_bytes};
  return Status::Ok();
}

void PinnedPool::GiveBack(PinnedBlock block) {
  if (block.memory == nullptr) return;
  idle_.push_front(block);
  idle_bytes_ += block.size_bytes;
  largest_bytes_ = std::max(largest_bytes_, block.size_bytes);
  while (idle_bytes_ > std::max(kIdleBytes, largest_bytes_)) {
    idle_bytes_ -= idle_.back().size_bytes;
    device_->FreePinned(idle_.back().memory);
    idle_.pop_back();
  }
}

}  // namespace farandole
