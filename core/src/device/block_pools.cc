#include "device/block_pools.h"

#include <algorithm>
#include <utility>

namespace farandole {

// Rounds up to the next quarter of a power of two, so a block is at most a quarter larger than the requested size.
size_t IdleBlocks::RoundUp(size_t size_bytes) {
  constexpr size_t kLeast = 64 << 10;
  size_t power = kLeast;
  while (power <= size_bytes / 2) power *= 2;
  const size_t step = power / 4;
  return std::max(kLeast, (size_bytes + step - 1) / step * step);
}

void IdleBlocks::Add(Block block) {
  blocks_.push_front(block);
  bytes_ += block.size_bytes;
  largest_bytes_ = std::max(largest_bytes_, block.size_bytes);
}

std::vector<Block> IdleBlocks::TakeSurplus() {
  std::vector<Block> surplus;
  while (bytes_ > std::max(kBytes, largest_bytes_)) {
    bytes_ -= blocks_.back().size_bytes;
    surplus.push_back(blocks_.back());
    blocks_.pop_back();
  }
  return surplus;
}

std::vector<Block> IdleBlocks::TakeAll() {
  std::vector<Block> all(blocks_.begin(), blocks_.end());
  blocks_.clear();
  bytes_ = 0;
  return all;
}

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

// Frees no memory, since the device may have work that waits for other ranks. FreeSurplus frees it later.
void PinnedPool::GiveBack(Block block) {
  if (block.memory == nullptr) return;
  idle_.Add(block);
}

void PinnedPool::FreeSurplus() {
  for (const Block& surplus : idle_.TakeSurplus()) device_->FreePinned(surplus.memory);
}

// The deleter owns a share of the pool, since a framework may drop the result after the engine has ended.
Status ResultPool::Take(size_t size_bytes, std::shared_ptr<std::byte>* memory) {
  Block block;
  const size_t wanted_bytes = IdleBlocks::RoundUp(size_bytes);
  if (!FindIdle(wanted_bytes, &block)) FRD_RETURN_IF_ERROR(Allocate(wanted_bytes, &block));
  *memory = {block.memory, [pool = shared_from_this(), block](std::byte*) { pool->GiveBack(block); }};
  return Status::Ok();
}

bool ResultPool::FindIdle(size_t size_bytes, Block* block) {
  const auto is_unused = [this](const Block& each) {
    bool happened = false;
    return device_->HasHappened(each.last_use, &happened).ok() && happened;
  };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.Take(size_bytes, is_unused, block)) return false;
  }
  if (block->last_use != nullptr) device_->DestroyEvent(std::exchange(block->last_use, nullptr));
  return true;
}

// When the device has no memory left, frees the idle blocks of other sizes and tries again.
Status ResultPool::Allocate(size_t size_bytes, Block* block) {
  void* memory = nullptr;
  if (const Status allocated = device_->Allocate(size_bytes, &memory); !allocated.ok()) {
    std::vector<Block> all;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      all = idle_.TakeAll();
    }
    if (all.empty()) return allocated;
    Free(all);
    FRD_RETURN_IF_ERROR(device_->Allocate(size_bytes, &memory));
  }
  *block = {static_cast<std::byte*>(memory), size_bytes};
  return Status::Ok();
}

// Frees a block whose last use cannot be marked; freeing waits for all submitted work of the device.
void ResultPool::GiveBack(Block block) {
  if (!device_->MarkAll(&block.last_use).ok()) return Free({block});
  std::vector<Block> surplus;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.Add(block);
    surplus = idle_.TakeSurplus();
  }
  Free(surplus);
}

void ResultPool::Free(const std::vector<Block>& blocks) {
  for (const Block& block : blocks) {
    device_->Free(block.memory);
    if (block.last_use != nullptr) device_->DestroyEvent(block.last_use);
  }
}

std::shared_ptr<ResultPool> ResultPools::Of(Device* device) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<ResultPool>& pool = pools_[device];
  if (!pool) pool = std::make_shared<ResultPool>(device);
  return pool;
}

}  // namespace farandole
