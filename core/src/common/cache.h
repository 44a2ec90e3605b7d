// Hints to the processor's caches, and a fence between two loads that is cheap where the hardware keeps their order.
// Functions without state; any thread may call them.
#pragma once

#include <atomic>
#include <cstddef>

namespace farandole {

inline constexpr size_t kLineBytes = 64;

// A pass over much memory asks for lines this far ahead of where it reads. One page: hardware that fetches ahead by
// itself stops at the end of a page, and begins the next with a miss, which beyond the caches costs a fifth of the
// pass.
inline constexpr size_t kReadAheadBytes = 4096;

// Fetches the line of this address into the second-level cache, to be read soon.
inline void AskToRead(const void* address) { __builtin_prefetch(address, 0, 2); }

// Fetches the line of this address to be written, without waiting. A line that another core has written then crosses
// once; to read and then write it would send for it twice.
inline void AskForLine(const void* address) {
#if defined(__x86_64__)
  // The compiler's builtin asks for reading only, unless the target is a recent processor.
  asm volatile("prefetchw (%0)" : : "r"(address));
#else
  __builtin_prefetch(address, 1);
#endif
}

// Keeps two loads in order against a thread that stores, fences (sequentially consistent) and loads: if our second load
// does not see that thread's store, its load sees what our first load saw. x86 never reorders loads, so there only the
// compiler is held back; a full fence would cost as much as the exchange that it guards.
inline void LoadLoadFence() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace farandole
