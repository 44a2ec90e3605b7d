// A transport of Gloo's whose operations can be given up from another thread. Closing Gloo's connections does not wake
// who waits for them, so the buffers that are waited for are known here, and are told.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace farandole_gloo {

// Every call goes to the transport below; whoever waits when Interrupt comes, or afterwards, gets an exception.
class Interruptible final : public gloo::transport::Context {
 public:
  explicit Interruptible(std::shared_ptr<gloo::transport::Context> below)
      : gloo::transport::Context(below->rank, below->size),
        below_(std::move(below)),
        waiting_(std::make_shared<Waiting>()) {}

  // Gloo's own is not virtual, and connections take the limit over when they are made.
  void SetLimit(std::chrono::milliseconds limit) {
    setTimeout(limit);
    below_->setTimeout(limit);
  }

  void Interrupt() { waiting_->Interrupt(); }

  std::unique_ptr<gloo::transport::Pair>& getPair(int other) override { return below_->getPair(other); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int other) override { return below_->createPair(other); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory, size_t size_bytes) override {
    return std::make_unique<Buffer>(waiting_, below_->createUnboundBuffer(memory, size_bytes));
  }

 private:
  using Below = gloo::transport::UnboundBuffer;

  class Waiting {
   public:
    void Add(Below* buffer) {
      const std::lock_guard<std::mutex> lock(mutex_);
      buffers_.insert(buffer);
      if (interrupted_) Wake(buffer);
    }
    void Remove(Below* buffer) {
      const std::lock_guard<std::mutex> lock(mutex_);
      buffers_.erase(buffer);
    }
    void Interrupt() {
      const std::lock_guard<std::mutex> lock(mutex_);
      interrupted_ = true;
      for (Below* const buffer : buffers_) Wake(buffer);
    }
    // `completed`: what the wait says, false when it was woken.
    bool Check(bool completed) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!completed || interrupted_) throw std::runtime_error("the operation was given up");
      return true;
    }

   private:
    static void Wake(Below* buffer) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
    std::mutex mutex_;
    std::set<Below*> buffers_;
    bool interrupted_ = false;
  };

  class Buffer final : public Below {
   public:
    Buffer(std::shared_ptr<Waiting> waiting, std::unique_ptr<Below> below)
        : Below(below->ptr, below->size), waiting_(std::move(waiting)), below_(std::move(below)) {
      waiting_->Add(below_.get());
    }
    ~Buffer() override { waiting_->Remove(below_.get()); }

    bool waitRecv(int* other, std::chrono::milliseconds limit) override {
      return waiting_->Check(below_->waitRecv(other, limit));
    }
    bool waitSend(int* other, std::chrono::milliseconds limit) override {
      return waiting_->Check(below_->waitSend(other, limit));
    }
    void abortWaitRecv() override { below_->abortWaitRecv(); }
    void abortWaitSend() override { below_->abortWaitSend(); }
    void send(int to, uint64_t slot, size_t offset, size_t size_bytes) override {
      below_->send(to, slot, offset, size_bytes);
    }
    void recv(int from, uint64_t slot, size_t offset, size_t size_bytes) override {
      below_->recv(from, slot, offset, size_bytes);
    }
    void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t size_bytes) override {
      below_->recv(std::move(from), slot, offset, size_bytes);
    }

   private:
    const std::shared_ptr<Waiting> waiting_;
    const std::unique_ptr<Below> below_;
  };

  const std::shared_ptr<gloo::transport::Context> below_;
  const std::shared_ptr<Waiting> waiting_;
};

}  // namespace farandole_gloo
