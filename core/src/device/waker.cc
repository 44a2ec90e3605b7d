#include "device/waker.h"

#include <fcntl.h>

#include "transport/shm/doorbell.h"

namespace farandole {
namespace {

void SignalAndDrop(void* argument) {
  const std::unique_ptr<std::shared_ptr<Descriptor>> event(static_cast<std::shared_ptr<Descriptor>*>(argument));
  SignalEvent((*event)->get());
}

}  // namespace

Waker::Waker(int wake_event) {
  if (wake_event >= 0) event_ = std::make_shared<Descriptor>(fcntl(wake_event, F_DUPFD_CLOEXEC, 0));
}

void Waker::WakeAfter(Device* device, Stream stream) const {
  if (!event_) return;
  auto argument = std::make_unique<std::shared_ptr<Descriptor>>(event_);
  if (device->Notify(stream, &SignalAndDrop, argument.get()).ok()) argument.release();  // SignalAndDrop has it
}

}  // namespace farandole
