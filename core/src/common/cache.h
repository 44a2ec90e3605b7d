// Hints to the processor's caches, stores that only take lines over, and a fence between two loads that is cheap where
// the hardware keeps their order. Functions without state; any thread may call them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace farandole {

inline constexpr size_t kLineBytes = 64;

// A loop over much memory prefetches this far ahead of where it reads. The distance is one page: the hardware's own
// prefetching stops at the end of a page and begins the next page with a miss
// (docs/design/data-plane.md#lines-that-change-hands).
inline constexpr size_t kReadAheadBytes = 4096;
// Likewise a loop over what another core has just written (docs/benchmarks/shared-memory.md#prefetching).
inline constexpr size_t kCoreReadAheadBytes = 2048;

// Prefetches the line of this address into the second-level cache, for a read that follows soon.
inline void PrefetchForRead(const void* address) { __builtin_prefetch(address, 0, 2); }

// As memcpy, but prefetches so far ahead. By lines, since a call of memcpy for each page would take longer.
inline void CopyWithPrefetch(std::byte* to, const std::byte* from, size_t size_bytes, size_t ahead_bytes) {
  size_t at = 0;
  for (; at + ahead_bytes < size_bytes; at += kLineBytes) {
    PrefetchForRead(from + at + ahead_bytes);
    std::memcpy(to + at, from + at, kLineBytes);
  }
  std::memcpy(to + at, from + at, size_bytes - at);
}

// Prefetches the line of this address for writing, without waiting. A line that another core has written then crosses
// once; reading it and then writing it would request it twice.
inline void PrefetchForWrite(const void* address) {
#if defined(__x86_64__)
  // The compiler's builtin prefetches for reading only, unless the target is a recent processor.
  asm volatile("prefetchw (%0)" : : "r"(address));
#else
  __builtin_prefetch(address, 1);
#endif
}

// Writes into each line of memory that another core has written and this one has read, and of which nobody reads the
// contents again. To write a line that this core has written is faster for the other core than to write one that was
// only read (docs/benchmarks/shared-memory.md#results-in-the-slots-of-others).
inline void AcquireLines(std::byte* begin, size_t size_bytes) {
  // Volatile: the compiler may not leave out stores that nobody reads.
  for (size_t at = 0; at < size_bytes; at += kLineBytes) *static_cast<volatile std::byte*>(begin + at) = std::byte{0};
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
