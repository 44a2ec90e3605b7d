// A Link between two threads of a test: a bounded queue of bytes each way, which moves random parts.
//
// Any link may move only a part of the bytes; sockets of the kernel seldom do. The loopback draws the number of bytes
// at random, so that callers see a cut at any byte. It moves at least one byte if possible.
//
// Thread rule: each end belongs to one thread at a time.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "transport/link.h"

namespace farandole::tests {

// One direction. Both ends hold it; any thread.
class LoopbackQueue {
 public:
  explicit LoopbackQueue(uint32_t seed) : random_(seed) {}

  // Return false when no byte was moved and the other end is closed. A writer notices a closed reader only when the
  // queue is full, as on a socket.
  bool Write(const char* data, size_t size_bytes, size_t* moved_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    *moved_bytes = PartOf(std::min(size_bytes, kCapacityBytes - bytes_.size()));
    bytes_.append(data, *moved_bytes);
    return *moved_bytes > 0 || !closed_;
  }
  bool Read(char* data, size_t size_bytes, size_t* moved_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    *moved_bytes = PartOf(std::min(size_bytes, bytes_.size()));
    bytes_.copy(data, *moved_bytes);
    bytes_.erase(0, *moved_bytes);
    return *moved_bytes > 0 || !closed_;
  }

  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }

 private:
  static constexpr size_t kCapacityBytes = 50000;  // no power of two, and less than one chunk

  // Three of four moves are whole, since the tests move gigabytes.
  size_t PartOf(size_t size_bytes) {
    return size_bytes < 2 || random_() % 4 > 0 ? size_bytes : 1 + random_() % size_bytes;
  }

  std::mutex mutex_;
  std::mt19937 random_;
  std::string bytes_;
  bool closed_ = false;  // by one of the ends
};

class LoopbackLink final : public Link {
 public:
  // `peer` names the other end in errors.
  LoopbackLink(std::shared_ptr<LoopbackQueue> outgoing, std::shared_ptr<LoopbackQueue> incoming, std::string peer)
      : outgoing_(std::move(outgoing)), incoming_(std::move(incoming)), peer_(std::move(peer)) {}
  ~LoopbackLink() override {  // the peer still receives what was sent, then kPeerLost
    outgoing_->Close();
    incoming_->Close();
  }
  LoopbackLink(const LoopbackLink&) = delete;
  LoopbackLink& operator=(const LoopbackLink&) = delete;

  Status TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) override {
    return outgoing_->Write(static_cast<const char*>(data), size_bytes, moved_bytes) ? Status::Ok() : PeerClosed();
  }
  Status TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) override {
    return incoming_->Read(static_cast<char*>(data), size_bytes, moved_bytes) ? Status::Ok() : PeerClosed();
  }
  int descriptor() const override { return -1; }  // callers must poll

 private:
  Status PeerClosed() const { return {Code::kPeerLost, peer_ + " left: it closed the loopback link to this rank"}; }

  const std::shared_ptr<LoopbackQueue> outgoing_, incoming_;
  const std::string peer_;
};

}  // namespace farandole::tests
