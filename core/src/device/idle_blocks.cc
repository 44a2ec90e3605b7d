#include "device/idle_blocks.h"

#include <algorithm>

namespace farandole {

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

}  // namespace farandole
