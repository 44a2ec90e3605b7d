// How ranks wake one another.
//
// Each rank has an eventfd, and one word in memory that its peers can see. A rank that stops polling arms its word,
// looks once more for work, and sleeps in epoll on the eventfd beside its sockets and its peers' pidfds, so that one
// sleep hears everything: a ring, a message, a death. Ringing a rank that polls costs a fence and a load; ringing a
// sleeper one write.
//
//   sleeper:  armed = 1; fence; look again; epoll_wait
//   ringer:   publish; fence; if armed and we clear it: write(eventfd)
//
// The two fences make sure that either the sleeper sees what was published or the ringer sees the armed word.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

struct alignas(64) DoorbellWord {
  std::atomic<uint32_t> armed;
};

Status MakeEvent(Descriptor* event);
void SignalEvent(int event);  // wakes whoever sleeps on it; async-signal-safe
void DrainEvent(int event);

// Rings if armed. REQUIRES: a sequentially consistent fence since the publication (RingFence), once for many bells.
inline void RingFence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void Ring(DoorbellWord& bell, int event) {
  if (bell.armed.load(std::memory_order_relaxed) == 0) return;
  if (bell.armed.exchange(0) != 0) SignalEvent(event);
}
inline void Arm(DoorbellWord& bell) {
  bell.armed.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void Disarm(DoorbellWord& bell) { bell.armed.store(0, std::memory_order_relaxed); }

}  // namespace farandole
