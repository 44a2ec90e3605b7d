#include "transport/shm/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace farandole {

Status MakeEvent(Descriptor* event) {
  *event = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return event->get() >= 0 ? Status::Ok() : SystemError("eventfd");
}

void SignalEvent(int event) {
  const uint64_t one = 1;
  // Can fail only when the counter is full, and then the sleeper is awake already.
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
}

void DrainEvent(int event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event, &count, sizeof(count));
}

}  // namespace farandole
