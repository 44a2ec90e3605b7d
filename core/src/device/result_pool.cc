#include "device/result_pool.h"

namespace farandole {

Status ResultPool::Take(size_t size_bytes, std::shared_ptr<std::byte>* memory) {
  Block block;
  FRD_RETURN_IF_ERROR(Find(IdleBlocks::RoundUp(size_bytes), &block));
  *memory = {block.memory, [pool = shared_from_this(), block](std::byte*) { pool->GiveBack(block); }};
  return Status::Ok();
}

Status ResultPool::Find(size_t size_bytes, Block* block) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto is_unused = [this](const Block& each) {
      bool happened = false;
      return device_->HasHappened(each.last_use, &happened).ok() && happened;
    };
    idle_.Take(size_bytes, is_unused, block);
  }
  if (block->memory == nullptr) return Allocate(size_bytes, block);
  if (block->last_use != nullptr) device_->DestroyEvent(block->last_use);
  block->last_use = nullptr;
  return Status::Ok();
}

// What lies idle in other sizes goes where there is no more.
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

// What cannot be marked goes: freeing it waits for whoever uses it.
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

size_t ResultPool::idle_bytes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return idle_.bytes();
}

std::shared_ptr<ResultPool> ResultPools::Of(Device* device) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<ResultPool>& pool = pools_[device];
  if (!pool) pool = std::make_shared<ResultPool>(device);
  return pool;
}

}  // namespace farandole
