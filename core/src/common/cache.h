// Cache lines that are asked for before they are needed, and the fence that the memory model asks for and x86 does not.
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>

namespace farandole {

inline constexpr size_t kLineBytes = 64;

// So far ahead of where it reads does a pass over much memory ask for lines. A page: hardware that fetches ahead by
// itself stops at the end of one, and begins the next with a miss, which beyond the caches costs a fifth of the pass.
inline constexpr size_t kReadAheadBytes = 4096;

// The line of this address shall come into the second-level cache, to be read before long.
inline void AskToRead(const void* address) { __builtin_prefetch(address, 0, 2); }

// The line of this address shall come here to be written, without waiting. A line that another core has written comes
// over once, where reading and then writing it would send for it twice.
inline void AskForLine(const void* address) {
#if defined(__x86_64__)
  // The compiler's own word for it asks for reading only, unless the target is a recent processor.
  asm volatile("prefetchw (%0)" : : "r"(address));
#else
  __builtin_prefetch(address, 1);
#endif
}

// Between two loads, against a thread that stores, fences (sequentially consistent) and loads: if our second load does
// not see its store, its load sees what our first load saw. x86 never reorders loads, so that only the compiler has to
// be held back there; a full fence would cost as much as the exchange it guards.
inline void LoadLoadFence() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace farandole
