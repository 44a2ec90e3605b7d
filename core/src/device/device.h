// Memory that is not the host's, and what orders access to it.
//
// A device works through streams: in order, and later than it is told to. An event marks a place in a stream and has
// happened once the device is past it. The progress loop never waits for a device: it asks whether an event has
// happened, and a Waker wakes it when asking again is worth while. Streams and events are the device's own, so a
// framework's can be handed in, and ours out.
//
// A Device lives as long as the process, since a framework may use it until then. Any thread may call everything here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

using DeviceIdentity = std::array<char, 16>;  // the same wherever this piece of hardware is seen, and only there

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "CUDA device 0"
  virtual const DeviceIdentity& identity() const = 0;

  // Makes calls of a library that looks for this thread's current device. Returns what `calls` return, or an error of
  // the device's own.
  virtual Status Within(const std::function<Status()>& calls) = 0;

  // Memory of the device. Both may wait for the device.
  virtual Status Allocate(size_t size_bytes, void** memory) = 0;
  virtual void Free(void* memory) = 0;

  // Pinned host memory: the device reads and writes it by itself, beside the host's work. Both may take long and wait
  // for the device; block_pools.h keeps such memory for the next time.
  virtual Status AllocatePinned(size_t size_bytes, void** memory) = 0;
  virtual void FreePinned(void* memory) = 0;

  // A stream is ordered by nothing but events: not by a framework's default stream either.
  virtual Status CreateStream(Stream* stream) = 0;
  virtual void DestroyStream(Stream stream) = 0;
  virtual Status CreateEvent(Event* event) = 0;
  virtual void DestroyEvent(Event event) = 0;

  // These return at once; the device acts when the stream comes to it. Host memory is pinned, and valid until then.
  virtual Status CopyToHost(void* to, const void* from, size_t size_bytes, Stream stream) = 0;
  virtual Status CopyToDevice(void* to, const void* from, size_t size_bytes, Stream stream) = 0;
  virtual Status Zero(void* memory, size_t size_bytes, Stream stream) = 0;  // memory of the device
  virtual Status WaitInStream(Stream stream, Event event) = 0;
  virtual Status Record(Event event, Stream stream) = 0;
  // *event: the caller's to destroy; has happened once the device is done with all that this process has asked of it by
  // now, in whatever stream. Null where the device's driver cannot mark that; the device was waited for instead.
  virtual Status MarkAll(Event* event) = 0;
  // Calls function(argument) in a thread of the device's driver. It must be short and must not use the device.
  virtual Status Notify(Stream stream, void (*function)(void*), void* argument) = 0;

  // An error of earlier work of the device may come up here.
  virtual Status HasHappened(Event event, bool* happened) = 0;
};

// Finds the devices of this process. A driver is opened when the first tensor on such a device comes, and never closed:
// devices and frameworks use it until the process ends.
class Devices {
 public:
  explicit Devices(std::string cuda_driver) : cuda_driver_(std::move(cuda_driver)) {}

  // The device on which `address` lies. kInvalid says what is missing: the driver, or the address in its books.
  // REQUIRES: kind is not kHost.
  Status Find(DeviceKind kind, const void* address, Device** device) const;

 private:
  std::string cuda_driver_;
};

// Wakes the progress loop when a stream has come to the place where it is now.
class Waker {
 public:
  // wake_event: the descriptor on which the progress loop sleeps; -1 where nobody sleeps. It is duplicated, since a
  // device may signal it after its owner has closed it.
  explicit Waker(int wake_event);
  // A failure is not reported: the loop asks the device a little later all the same, and is told then what is wrong.
  void WakeAfter(Device* device, Stream stream) const;

 private:
  std::shared_ptr<Descriptor> event_;
};

}  // namespace farandole
