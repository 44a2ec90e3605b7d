// Device memory, and the streams and events that order access to it.
//
// A device executes the work of a stream in order, and later than it was submitted. An event marks a place in a stream
// and has happened once the device has passed that place. The progress loop never waits for a device: it polls events,
// and a Waker wakes it when an event may have happened. Streams and events are those of the device's driver, so the
// core and frameworks can exchange them.
//
// A Device lives as long as the process, since a framework may use it until then. Any thread may call everything here.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/descriptor.h"
#include "common/status.h"
#include "common/types.h"

namespace farandole {

const char* NameOf(DeviceKind kind);

using Stream = void*;
using Event = void*;  // null: has happened

using DeviceIdentity = std::array<char, 16>;  // unique to this piece of hardware, and the same in all processes

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "CUDA device 0"
  virtual const DeviceIdentity& identity() const = 0;

  // Runs `calls` while this is the thread's current device, for libraries that use the current device. Returns the
  // result of `calls`, or an error of the device.
  virtual Status Within(const std::function<Status()>& calls) = 0;

  // Allocate and free memory of the device. Both may wait for the device.
  virtual Status Allocate(size_t size_bytes, void** memory) = 0;
  virtual void Free(void* memory) = 0;

  // Allocate and free pinned host memory, which the device reads and writes while the host works. Both may take long
  // and wait for the device, so block_pools.h reuses such memory.
  virtual Status AllocatePinned(size_t size_bytes, void** memory) = 0;
  virtual void FreePinned(void* memory) = 0;

  // Only events order such a stream; a framework's default stream does not.
  virtual Status CreateStream(Stream* stream) = 0;
  virtual void DestroyStream(Stream stream) = 0;
  virtual Status CreateEvent(Event* event) = 0;
  virtual void DestroyEvent(Event event) = 0;

  // These return at once; the device acts when the stream reaches the work. REQUIRES: host memory is pinned, and valid
  // until then.
  virtual Status CopyToHost(void* to, const void* from, size_t size_bytes, Stream stream) = 0;
  virtual Status CopyToDevice(void* to, const void* from, size_t size_bytes, Stream stream) = 0;
  virtual Status Zero(void* memory, size_t size_bytes, Stream stream) = 0;  // memory of the device
  virtual Status WaitInStream(Stream stream, Event event) = 0;
  virtual Status Record(Event event, Stream stream) = 0;
  // *event, which the caller destroys, has happened once the device has done all work that this process has submitted
  // so far, in all streams. Null if the driver cannot mark that; then the call has waited for the device.
  virtual Status MarkAll(Event* event) = 0;
  // Calls function(argument) in a thread of the device's driver. It must be short and must not use the device.
  virtual Status Notify(Stream stream, void (*function)(void*), void* argument) = 0;

  // May return an error of earlier work of the device.
  virtual Status HasHappened(Event event, bool* happened) = 0;
};

// Finds the devices of this process. The first tensor on such a device opens the driver. It is never closed, because
// devices and frameworks use it until the process ends.
class Devices {
 public:
  explicit Devices(std::string cuda_driver) : cuda_driver_(std::move(cuda_driver)) {}

  // The device on which `address` lies. kInvalid: the driver is missing, or does not know the address. REQUIRES: kind
  // is not kHost.
  Status Find(DeviceKind kind, const void* address, Device** device) const;

 private:
  std::string cuda_driver_;
};

// Wakes the progress loop when a stream has finished the work submitted so far.
class Waker {
 public:
  // wake_event: the eventfd on which the progress loop sleeps; -1 if no thread sleeps. The Waker duplicates it, since a
  // device may signal it after its owner has closed it.
  explicit Waker(int wake_event);
  // Reports no failure, since the loop polls the device a little later anyway and receives the error then.
  void WakeAfter(Device* device, Stream stream) const;

 private:
  std::shared_ptr<Descriptor> event_;
};

}  // namespace farandole
