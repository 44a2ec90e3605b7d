// What the tasks of one device use of it: a stream, an event behind the last work, and memory. The driver alone calls.
#pragma once

#include <cstddef>

#include "backends/nccl/store.h"
#include "device/device.h"

namespace farandole {

class Lane {
 public:
  explicit Lane(Device* device) : device_(device) {}
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  Status Open();

  // At least size_bytes of zeros, once the stream has come to here, which stand in for the memory of ranks that have
  // joined. The work before is over.
  Status TakeZeros(size_t size_bytes);
  std::byte* zeros() const { return zeros_.memory(); }
  Store& room() { return room_; }      // on the device
  Store& pinned() { return pinned_; }  // on the host
  // Whatever the stream has been told to do by now lies before the event.
  Status Mark() { return device_->Record(event_, stream_); }
  Status HasPassed(bool* passed) { return device_->HasHappened(event_, passed); }
  // The device does not come back, and keeps what it may still use.
  void Leave();

  Device* device() const { return device_; }
  Stream stream() const { return stream_; }

 private:
  Device* const device_;
  Stream stream_ = nullptr;
  Event event_ = nullptr;
  Store zeros_{device_, &Device::Allocate, &Device::Free};
  Store room_{device_, &Device::Allocate, &Device::Free};
  Store pinned_{device_, &Device::AllocatePinned, &Device::FreePinned};
  bool is_left_ = false;
};

}  // namespace farandole
