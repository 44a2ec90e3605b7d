// Pinned host memory that is kept for the next time (idle_blocks.h). The driver alone calls.
#pragma once

#include "device/idle_blocks.h"

namespace farandole {

class PinnedPool {
 public:
  explicit PinnedPool(Device* device) : device_(device) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // At least size_bytes; no memory at all for 0. An error when the device's driver has none left.
  Status Take(size_t size_bytes, Block* block);
  // REQUIRES: neither host nor device use it any more.
  void GiveBack(Block block);
  // Frees what is idle beyond the bound. REQUIRES: the device has no work that waits for other ranks; freeing waits for
  // it, and who frees is who would end it when they do not come.
  void FreeSurplus();

  size_t idle_bytes() const { return idle_.bytes(); }

 private:
  Device* const device_;
  IdleBlocks idle_;
};

}  // namespace farandole
