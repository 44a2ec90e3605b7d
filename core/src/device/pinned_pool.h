// Pinned host memory that is kept for the next time, because allocating and freeing it may wait for the device.
//
// Blocks have few sizes (four for each doubling), so that steps which differ a little find what the last one left. What
// lies idle is bounded: beyond the bound the block that was idle longest goes back to the system. The driver alone
// calls.
#pragma once

#include <cstddef>
#include <list>

#include "device/device.h"

namespace farandole {

struct PinnedBlock {
  std::byte* memory = nullptr;
  size_t size_bytes = 0;
};

class PinnedPool {
 public:
  static constexpr size_t kIdleBytes = size_t{256} << 20;

  explicit PinnedPool(Device* device) : device_(device) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // At least size_bytes; no memory at all for 0. An error when the device's driver has none left.
  Status Take(size_t size_bytes, PinnedBlock* block);
  // REQUIRES: neither host nor device use it any more.
  void GiveBack(PinnedBlock block);

  size_t idle_bytes() const { return idle_bytes_; }
  static size_t RoundUp(size_t size_bytes);

 private:
  Device* const device_;
  std::list<PinnedBlock> idle_;  // the one used last first
  size_t idle_bytes_ = 0;
  size_t largest_bytes_ =
      0;  // a single block of more than the bound is kept too: else it would be allocated every step
};

}  // namespace farandole
