// Hints to the processor's caches, stores that only take lines over, and a fence between two loads that is cheap where
// the hardware keeps their order. Functions without state; any thread may call them.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farandole {

inline constexpr size_t kLineBytes = 64;

// Where nothing has been measured, the size of a core's second-level cache distinguishes the machines: 2 MiB in every
// Xeon since 2023, 1 MiB or less in an EPYC.
inline constexpr int64_t kLargeSecondLevelBytes = 2 << 20;
inline int64_t SecondLevelCacheBytes() { return sysconf(_SC_LEVEL2_CACHE_SIZE); }  // 0 or -1: unknown

// A loop over much memory prefetches this far ahead of where it reads. The distance is one page: the hardware's own
// prefetching stops at the end of a page and begins the next page with a miss. For data outside the caches these misses
// take a fifth of the loop's time.
inline constexpr size_t kReadAheadBytes = 4096;
// Likewise a loop over what another core has just written: with 1024 it took up to 4 % longer (Intel Xeon).
inline constexpr size_t kCoreReadAheadBytes = 2048;

// Prefetches the line of this address into the second-level cache, for a read that follows soon.
inline void AskToRead(const void* address) { __builtin_prefetch(address, 0, 2); }

// Prefetches the line of this address for writing, without waiting. A line that another core has written then crosses
// once; reading it and then writing it would request it twice.
inline void AskForLine(const void* address) {
#if defined(__x86_64__)
  // The compiler's builtin prefetches for reading only, unless the target is a recent processor.
  asm volatile("prefetchw (%0)" : : "r"(address));
#else
  __builtin_prefetch(address, 1);
#endif
}

// Writes into each line of memory that another core has written and this one has read, and of which nobody reads the
// contents again. The other core then takes 1 to 3 ns to write a line anew, instead of 7 to 28 ns for one that was only
// read (collectives/allreduce.cc).
inline void TakeLines(std::byte* begin, size_t size_bytes) {
  // Volatile: the compiler may not leave out stores that nobody reads.
  for (size_t at = 0; at < size_bytes; at += kLineBytes) *static_cast<volatile std::byte*>(begin + at) = std::byte{0};
}

// Likewise where other threads may still read the contents, which stay as they are. REQUIRES: no thread writes there.
inline void TakeLinesUnchanged(std::byte* begin, size_t size_bytes) {
#if defined(__x86_64__)
  for (size_t at = 0; at < size_bytes; at += kLineBytes) asm volatile("orb $0, %0" : "+m"(begin[at]) : : "cc");
#else
  static_cast<void>(begin);
  static_cast<void>(size_bytes);
#endif
}

// Keeps two loads of this thread in order. The other thread stores, issues a sequentially consistent fence, and loads.
// If our second load does not see that store, the other thread's load sees what our first load saw. x86 never reorders
// loads, so there only the compiler needs the fence; a full fence would cost as much as the exchange that it guards.
inline void LoadLoadFence() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace farandole
