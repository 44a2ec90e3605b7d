#include "backends/nccl/caller.h"

namespace farandole {
namespace {

constexpr int kFirstForAnyThread = 22700;

}  // namespace

Caller::Caller(const NcclLibrary& nccl) {
  if (nccl.version < kFirstForAnyThread) thread_ = std::thread([this] { Loop(); });
}

Caller::~Caller() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

Status Caller::Make(Device* device, const std::function<Status()>& calls) {
  if (!thread_.joinable()) return device->Within(calls);
  std::unique_lock<std::mutex> lock(mutex_);
  device_ = device;
  calls_ = &calls;
  changed_.notify_all();
  changed_.wait(lock, [this] { return calls_ == nullptr; });
  return said_;
}

void Caller::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || calls_ != nullptr; });
    if (stopping_) return;
    said_ = device_->Within(*calls_);
    calls_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace farandole
