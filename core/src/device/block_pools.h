// Pools of memory for reuse, since allocating and freeing such memory may wait for a device.
//
//   IdleBlocks      unused blocks of few sizes, up to a bound on their bytes
//   PinnedPool      pinned host memory, for copies between host and device
//   ResultPool      memory on a device for results, which the framework drops at any time
//   ResultPools     one ResultPool for each device
//
// A pool owns its idle blocks. A device outlives its pools.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace farandole {

struct Block {
  std::byte* memory = nullptr;
  size_t size_bytes = 0;
  Event last_use = nullptr;  // the block is free once it has happened; null: it is free
};

// Blocks have few sizes, four for each doubling, so that training steps with slightly different sizes reuse the same
// blocks. The idle bytes are bounded: beyond the bound, the block that was idle longest is to be freed. The owner
// synchronizes.
class IdleBlocks {
 public:
  static constexpr size_t kBytes = size_t{256} << 20;
  static size_t RoundUp(size_t size_bytes);

  // Moves out the first block of this size for which usable(block) is true. REQUIRES: size_bytes is a result of
  // RoundUp.
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
  // Moves out the blocks beyond the bound, which the caller frees.
  std::vector<Block> TakeSurplus();
  std::vector<Block> TakeAll();

 private:
  std::list<Block> blocks_;  // the most recently used first
  size_t bytes_ = 0;
  // A single block above the bound is kept, too, since it would else be allocated anew every step.
  size_t largest_bytes_ = 0;
};

// Only the holder of the ProgressLock uses it.
class PinnedPool {
 public:
  explicit PinnedPool(Device* device) : device_(device) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Takes a block of at least size_bytes; an empty one for 0. An error when the device's driver has no memory left.
  Status Take(size_t size_bytes, Block* block);
  // REQUIRES: neither host nor device use it any more.
  void GiveBack(Block block);
  // Frees idle blocks beyond the bound. REQUIRES: the device has no work that waits for other ranks. Freeing waits for
  // the device, and this same thread would have to end such work.
  void FreeSurplus();

 private:
  Device* const device_;
  IdleBlocks idle_;
};

//   Take --> a result, which the framework uses in streams of its own --> dropped --> idle --> Take
//
// A framework that drops a result does not say in which streams it still uses it. So the pool marks a returned block
// with all work submitted to the device so far (Device::MarkAll), and reuses the block only when that has happened. Any
// thread may call it. Results may outlive the engine that took them, and keep the pool alive.
class ResultPool : public std::enable_shared_from_this<ResultPool> {
 public:
  explicit ResultPool(Device* device) : device_(device) {}
  ~ResultPool() { Free(idle_.TakeAll()); }
  ResultPool(const ResultPool&) = delete;
  ResultPool& operator=(const ResultPool&) = delete;

  // Takes a block of at least size_bytes > 0. It returns to the pool with the last copy of *memory. An error when the
  // device has no memory left, even without the idle blocks.
  Status Take(size_t size_bytes, std::shared_ptr<std::byte>* memory);

 private:
  bool FindIdle(size_t size_bytes, Block* block);
  Status Allocate(size_t size_bytes, Block* block);
  void GiveBack(Block block);
  void Free(const std::vector<Block>& blocks);  // waits for the device, so never called under the mutex

  Device* const device_;
  std::mutex mutex_;
  IdleBlocks idle_;  // guarded by mutex_
};

// One ResultPool per device. The engine owns it. Any thread may call it.
class ResultPools {
 public:
  std::shared_ptr<ResultPool> Of(Device* device);

 private:
  std::mutex mutex_;
  std::map<Device*, std::shared_ptr<ResultPool>> pools_;  // guarded by mutex_
};

}  // namespace farandole
