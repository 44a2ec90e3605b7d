// Blocks of memory that are kept for the next time, where allocating and freeing may wait for a device.
//
// Blocks have few sizes (four for each doubling), so that steps which differ a little find what the last one left. What
// lies idle is bounded: beyond the bound the block that was idle longest is to be freed. Not synchronized.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "device/device.h"

namespace farandole {

struct Block {
  std::byte* memory = nullptr;
  size_t size_bytes = 0;
  Event last_use = nullptr;  // null: nothing uses it any more
};

class IdleBlocks {
 public:
  static constexpr size_t kBytes = size_t{256} << 20;
  static size_t RoundUp(size_t size_bytes);

  // Moves out the first one of this size, which is one that RoundUp gives, for which usable(block) says so.
  template <typename Usable>
  bool Take(size_t size_bytes, Usable usable, Block* block) {
    for (auto each = blocks_.begin(); each != blocks_.end(); ++each) {
      if (each->size_bytes != size_bytes || !usable(*each)) continue;
      *block = *each;
      bytes_ -= size_bytes;
      blocks_.erase(each);
      return true;
    }
    return false;
  }

  void Add(Block block);
  // Those beyond the bound, for the caller to free.
  std::vector<Block> TakeSurplus();
  std::vector<Block> TakeAll();

  size_t bytes() const { return bytes_; }

 private:
  std::list<Block> blocks_;  // the one used last first
  size_t bytes_ = 0;
  // A single block of more than the bound is kept, too: else it would be allocated every step.
  size_t largest_bytes_ = 0;
};

}  // namespace farandole
