// A file descriptor with one owner.
//
// The owner's destructor closes the descriptor, so no early return leaks a socket or a memfd. The system reuses the
// number of a closed descriptor, so code that must distinguish two descriptors compares serials. Move-only; one thread
// at a time.
//
// A forked child has copies of all descriptors, which would keep a dead rank's connections open. So the child calls
// CloseInChild.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace farandole {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd), serial_(++last_serial_), process_(process_now_) { Note(true); }
  ~Descriptor() { Reset(); }
  Descriptor(Descriptor&& other) noexcept { *this = std::move(other); }
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      serial_ = other.serial_;
      process_ = other.process_;
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  uint64_t serial() const { return serial_; }

  // The caller becomes the owner.
  int Release() {
    Note(false);
    return std::exchange(fd_, -1);
  }

  void Reset() {
    const bool is_ours = process_ == process_now_;  // in a child, another file may have this number by now
    if (fd_ >= 0 && is_ours) {
      Note(false);
      ::close(fd_);  // EINTR is not retried: on Linux the number is free whatever close returns
    }
    fd_ = -1;
  }

  // Closes all descriptors that have an owner. Called right after a fork, in the child, by its only thread. The copies
  // of the owners that the child has inherited do nothing afterwards, since `process_` no longer matches.
  static void CloseInChild() {
    ++process_now_;
    for (size_t word = 0; word < open_.size(); ++word) {
      const uint64_t bits = open_[word].exchange(0);
      for (int bit = 0; bit < 64; ++bit) {
        if ((bits >> bit & 1) != 0) ::close(static_cast<int>(word * 64) + bit);
      }
    }
  }

 private:
  // Sets or clears the bit of this number in open_.
  void Note(bool open) const {
    if (fd_ < 0 || process_ != process_now_ || static_cast<size_t>(fd_) / 64 >= open_.size()) return;
    const uint64_t bit = uint64_t{1} << (fd_ % 64);
    std::atomic<uint64_t>& word = open_[static_cast<size_t>(fd_) / 64];
    open ? word.fetch_or(bit, std::memory_order_relaxed) : word.fetch_and(~bit, std::memory_order_relaxed);
  }

  inline static std::atomic<uint64_t> last_serial_{0};
  inline static uint32_t process_now_ = 0;                        // forks between the first process and this one
  inline static std::array<std::atomic<uint64_t>, 1024> open_{};  // a bit per number below 65,536 that has an owner

  int fd_ = -1;
  uint64_t serial_ = 0;
  uint32_t process_ = 0;  // process_now_ when this object was made
};

}  // namespace farandole
