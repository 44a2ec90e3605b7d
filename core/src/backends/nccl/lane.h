// What the works of one device use of it: a stream, an event behind the last work, and memory that stands in for that
// of ranks that have joined. The driver alone calls.
#pragma once

#include <cstddef>
#include <vector>

#include "device/device.h"

namespace farandole {

class Lane {
 public:
  explicit Lane(Device* device) : device_(device) {}
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  Status Open();

  // At least size_bytes of zeros, once the stream has come to here. The work before is over.
  Status TakeZeros(size_t size_bytes);
  std::byte* zeros() const { return zeros_.empty() ? nullptr : zeros_.back(); }
  // Whatever the stream has been told to do by now lies before the event.
  Status Mark() { return device_->Record(event_, stream_); }
  Status HasPassed(bool* passed) { return device_->HasHappened(event_, passed); }
  // The device does not come back, and keeps what it may still use.
  void Leave() { is_left_ = true; }

  Device* device() const { return device_; }
  Stream stream() const { return stream_; }

 private:
  Device* const device_;
  Stream stream_ = nullptr;
  Event event_ = nullptr;
  std::vector<std::byte*> zeros_;  // the last is the largest
  size_t zeros_bytes_ = 0;         // of the last
  bool is_left_ = false;
};

}  // namespace farandole
