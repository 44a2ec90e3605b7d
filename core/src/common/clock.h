// Monotonic time as a value. State machines are handed `now`; only the loops that drive them read the clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace farandole {

using TimePoint = std::chrono::steady_clock::time_point;

inline TimePoint Now() { return std::chrono::steady_clock::now(); }
inline int64_t MillisecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(to - from).count();
}

// Tells the processor that this is a waiting loop.
inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace farandole
