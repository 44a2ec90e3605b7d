// Wakes the driver when a stream has come to the place where it is now. Any thread.
#pragma once

#include <memory>

#include "common/descriptor.h"
#include "device/device.h"

namespace farandole {

class Waker {
 public:
  // The event that wakes the driver is duplicated: a device may signal it late. -1: nobody sleeps.
  explicit Waker(int wake_event);
  // When it cannot be done the driver comes a little later, and hears then what is wrong.
  void WakeAfter(Device* device, Stream stream) const;

 private:
  std::shared_ptr<Descriptor> event_;
};

}  // namespace farandole
