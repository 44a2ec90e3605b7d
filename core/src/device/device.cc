#include "device/device.h"

#include <fcntl.h>

#include "device/cuda.h"
#include "transport/shm/doorbell.h"

namespace farandole {
namespace {

// Runs in a thread of the device's driver. The argument shares the descriptor, so the descriptor is still open.
void SignalAndDrop(void* argument) {
  const std::unique_ptr<std::shared_ptr<Descriptor>> event(static_cast<std::shared_ptr<Descriptor>*>(argument));
  SignalEvent((*event)->get());
}

}  // namespace

const char* NameOf(DeviceKind kind) { return kind == DeviceKind::kCuda ? "CUDA device" : "host"; }

Status Devices::Find(DeviceKind kind, const void* address, Device** device) const {
  if (kind == DeviceKind::kCuda) return FindCudaDevice(cuda_driver_, address, device);
  return Internal("memory of the host has no device");
}

Waker::Waker(int wake_event) {
  if (wake_event >= 0) event_ = std::make_shared<Descriptor>(fcntl(wake_event, F_DUPFD_CLOEXEC, 0));
}

void Waker::WakeAfter(Device* device, Stream stream) const {
  if (!event_) return;
  auto argument = std::make_unique<std::shared_ptr<Descriptor>>(event_);
  if (device->Notify(stream, &SignalAndDrop, argument.get()).ok()) argument.release();  // SignalAndDrop owns it now
}

}  // namespace farandole
