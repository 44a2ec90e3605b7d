// Memory like that of a fresh segment: zero, and aligned to a page, on which the counters' cache lines rely. Only
// touched pages cost memory, so a test may make thousands of nodes.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

namespace farandole {

class Pages {
 public:
  explicit Pages(size_t size_bytes)
      : size_bytes_(size_bytes),
        data_(mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) std::abort();
  }
  ~Pages() { munmap(data_, size_bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  size_t size_bytes_;
  void* data_;
};

}  // namespace farandole
