// Memory as a fresh arena's: zero, and aligned to a page, which the board's cache lines rely on.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace farandole {

// To be given back with std::free.
inline std::byte* ZeroedPages(size_t size_bytes) {
  constexpr size_t kPageBytes = 4096;
  const size_t whole = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* const memory = std::aligned_alloc(kPageBytes, whole);
  return static_cast<std::byte*>(std::memset(memory, 0, whole));
}

}  // namespace farandole
