// Cache lines, asked for before they are needed. Any thread, any address: nothing is read, nothing can fail.
#pragma once

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

}  // namespace farandole
