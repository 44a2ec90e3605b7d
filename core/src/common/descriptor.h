// A file descriptor with an owner.
//
// Closed when its owner goes, so that no early return leaks a socket or a memfd. The system gives the number of a
// closed descriptor to the next one, so whoever has to tell them apart asks for the serial. Move-only; one thread at a
// time.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace farandole {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd), serial_(++last_serial_) {}
  ~Descriptor() { Reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()), serial_(other.serial_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      serial_ = other.serial_;
      fd_ = other.Release();
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  uint64_t serial() const { return serial_; }

  // The caller becomes the owner.
  int Release() { return std::exchange(fd_, -1); }

  void Reset() {
    // EINTR is not retried: on Linux the number is free again whatever close says.
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  inline static std::atomic<uint64_t> last_serial_{0};

  int fd_ = -1;
  uint64_t serial_ = 0;
};

}  // namespace farandole
