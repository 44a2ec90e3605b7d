// Monotonic time as a value. State machines are handed `now`; only the loops that drive them read the clock. Any
// thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace farandole {

using TimePoint = std::chrono::steady_clock::time_point;
using Deadline = TimePoint;  // the latest time at which a call returns

inline TimePoint Now() { return std::chrono::steady_clock::now(); }
inline Deadline After(std::chrono::milliseconds timeout) { return Now() + timeout; }
inline int64_t MillisecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(to - from).count();
}

// The processor's cycle counter, which is cheaper than a clock. FlightHeader (operation/flight_recorder.h) holds what
// turns it into nanoseconds.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<uint64_t>(Now().time_since_epoch().count());
#endif
}

// Tells the processor that this is a waiting loop, so that the core's other hardware thread runs faster.
inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace farandole
