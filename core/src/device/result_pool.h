// Memory of a device for results, kept for the next ones (idle_blocks.h): freeing it would wait for the device.
//
//   Take --> a result, which the framework uses in streams of its own --> dropped --> idle --> Take
//
// Who drops a result does not say in which streams it is still used. So a block that comes back is marked with all
// that the device has been told by then (Device::MarkAll), and is taken again only when that has happened. Any thread;
// results may outlive whoever has taken them, and keep the pool.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/idle_blocks.h"

namespace farandole {

class ResultPool : public std::enable_shared_from_this<ResultPool> {
 public:
  explicit ResultPool(Device* device) : device_(device) {}
  ~ResultPool() { Free(idle_.TakeAll()); }
  ResultPool(const ResultPool&) = delete;
  ResultPool& operator=(const ResultPool&) = delete;

  // At least size_bytes > 0, which come back when the last copy of *memory goes. An error when the device has none,
  // idle blocks included.
  Status Take(size_t size_bytes, std::shared_ptr<std::byte>* memory);

  size_t idle_bytes();

 private:
  Status Find(size_t size_bytes, Block* block);
  Status Allocate(size_t size_bytes, Block* block);
  void GiveBack(Block block);
  void Free(const std::vector<Block>& blocks);  // waits for the device

  Device* const device_;
  std::mutex mutex_;
  IdleBlocks idle_;  // guarded by it
};

// One for each device.
class ResultPools {
 public:
  std::shared_ptr<ResultPool> Of(Device* device);

 private:
  std::mutex mutex_;
  std::map<Device*, std::shared_ptr<ResultPool>> pools_;  // guarded by it
};

}  // namespace farandole
