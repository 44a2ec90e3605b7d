#include "backends/native/staging.h"

namespace farandole {
namespace {

constexpr uint64_t kDepth = 3;
constexpr size_t kCountersBytes = 4096;

}  // namespace

struct Staging::Counters {
  alignas(128) std::atomic<uint64_t> published;
  alignas(128) std::atomic<uint64_t> combined;
};

size_t Staging::BytesPerMember() { return kCountersBytes + 2 * kDepth * kSlotBytes; }

Staging::Counters* Staging::counters(int member) const {
  return reinterpret_cast<Counters*>(group_->staging(0, member));
}

std::byte* Staging::slot(int member, uint64_t round) const {
  return group_->staging(0, member) + kCountersBytes + (round % kDepth) * kSlotBytes;
}

std::byte* Staging::result(int member, uint64_t round) const { return slot(member, round) + kDepth * kSlotBytes; }

void Staging::Publish(uint64_t end) const {
  counters(member())->published.store(end, std::memory_order_release);
  group_->RingOthers();
}

void Staging::Combined(uint64_t end) const {
  counters(member())->combined.store(end, std::memory_order_release);
  group_->RingOthers();
}

bool Staging::HasPublished(int member, uint64_t end) const {
  return counters(member)->published.load(std::memory_order_acquire) >= end;
}

bool Staging::HasCombined(int member, uint64_t end) const {
  return counters(member)->combined.load(std::memory_order_acquire) >= end;
}

bool Staging::AllPublished(uint64_t end) const {
  for (int m = 0; m < count(); ++m) {
    if (m != member() && !HasPublished(m, end)) return false;
  }
  return true;
}

std::vector<int> Staging::Laggards() const {
  const uint64_t published = counters(member())->published.load(std::memory_order_relaxed);
  const uint64_t combined = counters(member())->combined.load(std::memory_order_relaxed);
  std::vector<int> members;
  for (int m = 0; m < count(); ++m) {
    if (m != member() && (!HasPublished(m, published) || !HasCombined(m, combined))) members.push_back(m);
  }
  return members;
}

bool Staging::AllCombined(uint64_t end) const {
  for (int m = 0; m < count(); ++m) {
    if (m != member() && !HasCombined(m, end)) return false;
  }
  return true;
}

}  // namespace farandole
