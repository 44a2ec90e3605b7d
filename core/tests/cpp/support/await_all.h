// Waits until a device has done all work that was submitted to it, in all streams.
#pragma once

#include <gtest/gtest.h>

#include "device/device.h"

namespace farandole {

inline void AwaitAll(Device* device) {
  Event mark = nullptr;
  ASSERT_TRUE(device->MarkAll(&mark).ok());
  for (bool happened = false; !happened;) ASSERT_TRUE(device->HasHappened(mark, &happened).ok());
  device->DestroyEvent(mark);
}

}  // namespace farandole
