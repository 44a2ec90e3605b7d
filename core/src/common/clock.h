// Monotonic time as a value. State machines are handed `now`; only the loops that drive them read the clock. Any
// thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace farandole {

using TimePoint = std::chrono::steady_clock::time_point;
using Deadline = TimePoint;  // the latest time at which a call returns

inline TimePoint Now() { return std::chrono::steady_clock::now(); }
inline Deadline After(std::chrono::milliseconds span) { return Now() + span; }
inline int64_t MillisecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(to - from).count();
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
