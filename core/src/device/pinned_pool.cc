#include "device/pinned_pool.h"

namespace farandole {

PinnedPool::~PinnedPool() {
  for (const Block& block : idle_.TakeAll()) device_->FreePinned(block.memory);
}

Status PinnedPool::Take(size_t size_bytes, Block* block) {
  *block = Block();
  if (size_bytes == 0) return Status::Ok();
  const size_t wanted_bytes = IdleBlocks::RoundUp(size_bytes);
  if (idle_.Take(wanted_bytes, [](const Block&) { return true; }, block)) return Status::Ok();
  void* memory = nullptr;
  FRD_RETURN_IF_ERROR(device_->AllocatePinned(wanted_bytes, &memory));
  *block = {static_cast<std::byte*>(memory), wanted_bytes};
  return Status::Ok();
}

void PinnedPool::GiveBack(Block block) {
  if (block.memory == nullptr) return;
  idle_.Add(block);
}

void PinnedPool::FreeSurplus() {
  for (const Block& surplus : idle_.TakeSurplus()) device_->FreePinned(surplus.memory);
}

}  // namespace farandole
