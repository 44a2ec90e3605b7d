// Memory of a device, or pinned for it, that is kept from one work to the next. What has become too small is kept, too:
// freeing waits for the device, which may wait for another rank, and that for us. It at least doubles while there is
// room, so what is kept beside it is less than what is used. The driver alone calls.
#pragma once

#include <cstddef>
#include <vector>

#include "device/device.h"

namespace farandole {

class Store {
 public:
  using Allocate = Status (Device::*)(size_t size_bytes, void** memory);
  using Free = void (Device::*)(void* memory);

  Store(Device* device, Allocate allocate, Free free) : device_(device), allocate_(allocate), free_(free) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // From here on there are at least size_bytes, of any contents. The work before is over.
  Status Take(size_t size_bytes);
  std::byte* memory() const { return taken_.empty() ? nullptr : taken_.back(); }
  // The device does not come back, and keeps what it may still use.
  void Leave() { taken_.clear(); }

 private:
  Status Add(size_t size_bytes);

  Device* const device_;
  const Allocate allocate_;
  const Free free_;
  std::vector<std::byte*> taken_;  // the last is the largest
  size_t size_bytes_ = 0;          // of the last
};

}  // namespace farandole
