// Where memory lies and what orders access to it. The host now; a CUDA device joins by implementing Device.
//
// The driver never waits for a device: it asks whether an event has happened and comes back later. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace farandole {

enum class DeviceKind : int32_t { kHost = 0 };

using Stream = void*;  // null: the device's default order
using Event = void*;   // null: has happened

class Device {
 public:
  virtual ~Device() = default;
  // Copies in the order of `stream`; for the host it is done on return.
  virtual Status Copy(void* to, const void* from, size_t size_bytes, Stream stream) = 0;
  virtual bool HasHappened(Event event) = 0;
};

// Null for a kind that this build does not know.
Device* FindDevice(int32_t kind);

}  // namespace farandole
