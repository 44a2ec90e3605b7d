// Doorbells, with which ranks wake one another.
//
// Each rank owns an eventfd and one word in the node's shared memory, which its peers can see. A rank that stops
// polling arms its word, looks for work once more, and sleeps in epoll on the eventfd, its sockets and its peers'
// pidfds. So a ring, a message or a peer's death ends the sleep. Ringing a rank that polls costs a fence and a load;
// ringing a sleeping rank costs one more write.
//
//   sleeper:  armed = 1; fence; look again; epoll_wait
//   ringer:   publish; fence; if armed and the ringer clears it: write(eventfd)
//
// The two fences guarantee that either the sleeper sees what was published, or the ringer sees the armed word.
//
// Only a rank's own threads arm and disarm its word; any thread of any rank may ring, which clears it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

struct alignas(64) DoorbellWord {
  std::atomic<uint32_t> armed;
};

inline Status MakeEvent(Descriptor* event) {
  *event = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return event->get() >= 0 ? Status::Ok() : SystemError("eventfd");
}

// Wakes the thread that sleeps on the event; async-signal-safe.
inline void SignalEvent(int event) {
  const uint64_t one = 1;
  // The write fails only if the counter is full, and then the event is already signalled.
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
}

// Clears all signals received so far, so that the next sleep lasts until a later signal.
inline void DrainEvent(int event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event, &count, sizeof(count));
}

// Ring wakes the rank if its word is armed. REQUIRES: RingFence was called after the publication; one call serves many
// doorbells.
inline void RingFence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void Ring(DoorbellWord& doorbell, int event) {
  if (doorbell.armed.load(std::memory_order_relaxed) == 0) return;
  if (doorbell.armed.exchange(0) != 0) SignalEvent(event);
}
inline void Arm(DoorbellWord& doorbell) {
  doorbell.armed.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void Disarm(DoorbellWord& doorbell) { doorbell.armed.store(0, std::memory_order_relaxed); }

}  // namespace farandole
