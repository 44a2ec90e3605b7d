#include "backends/nccl/caller.h"

#include <utility>

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

Status Caller::Make(Device* device, Calls calls) {
  if (!thread_.joinable()) return device->Within(calls);
  std::lock_guard<std::mutex> lock(mutex_);
  calls_.push_back([device, calls = std::move(calls)] { return device->Within(calls); });
  changed_.notify_all();
  return Status::Ok();
}

bool Caller::TakeResult(Status* said) {
  if (!thread_.joinable()) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!calls_.empty()) return false;
  *said = std::exchange(said_, Status());
  return true;
}

bool Caller::IsBusy() const {
  if (!thread_.joinable()) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return !calls_.empty();
}

void Caller::Await() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return calls_.empty(); });
}

void Caller::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    Calls calls = std::move(calls_.front());  // its place stays taken while they are made
    lock.unlock();
    Status said = calls();
    calls = nullptr;
    lock.lock();
    if (said_.ok()) said_ = std::move(said);
    calls_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace farandole
