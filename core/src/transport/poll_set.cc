#include "transport/poll_set.h"

#include <algorithm>
#include <chrono>

#include "transport/socket_wait.h"

namespace farandole {
namespace {

constexpr int64_t kCancelIntervalMs = 100;

}  // namespace

void PollSet::Add(const Descriptor& descriptor, short events) {
  if (!descriptor.valid()) return;
  entries_.push_back({descriptor.get(), events, 0});
  serials_.push_back(descriptor.serial());
}

void PollSet::WakeAt(TimePoint time) { wake_ = std::min(wake_, time); }

bool PollSet::Wait() {
  ready_.clear();
  while (!WaitsAreCancelled()) {
    const TimePoint now = Now();
    const TimePoint until = std::min(std::max(wake_, now), now + std::chrono::milliseconds(kCancelIntervalMs));
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    const int count = poll(entries_.data(), entries_.size(), static_cast<int>(left_ms));
    if (count <= 0 && Now() < wake_) continue;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].revents != 0) ready_.insert(serials_[i]);
    }
    break;
  }
  entries_.clear();
  serials_.clear();
  wake_ = TimePoint::max();
  return !WaitsAreCancelled();
}

}  // namespace farandole
