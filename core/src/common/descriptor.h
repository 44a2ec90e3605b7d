// A file descriptor with an owner.
//
// Closed when its owner goes, so that no early return leaks a socket or a memfd. Move-only; one thread at a time.
#pragma once

#include <unistd.h>

#include <utility>

namespace farandole {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // The caller becomes the owner.
  int Release() { return std::exchange(fd_, -1); }

  void Reset(int fd = -1) {
    // EINTR is not retried: on Linux the number is free again whatever close says.
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace farandole
