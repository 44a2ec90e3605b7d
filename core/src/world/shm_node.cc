#include "world/shm_node.h"

#include <cstring>

#include "common/failpoint.h"

namespace farandole {
namespace {

// Each part begins on a page, so that an untouched part costs no memory.
constexpr size_t kPage = 4096;
constexpr size_t kHeaderBytes = kPage;
static_assert(sizeof(AbortWord) <= kHeaderBytes);

size_t Pages(size_t size_bytes) { return (size_bytes + kPage - 1) / kPage * kPage; }

}  // namespace

void AbortWord::Set(Code abort_code, int abort_culprit, const std::string& abort_text) {
  // The compare-exchange elects one writer, and the release store publishes the other fields.
  uint32_t expected = 0;
  if (!state.compare_exchange_strong(expected, 1)) return;
  FRD_FAILPOINT("abort.write");
  code = static_cast<int32_t>(abort_code);
  culprit = abort_culprit;
  std::strncpy(text, abort_text.c_str(), sizeof(text) - 1);
  state.store(2, std::memory_order_release);
}

size_t ShmNode::SegmentBytes(const SegmentPlan& plan, size_t member_count) {
  return kHeaderBytes + Pages(member_count * sizeof(DoorbellWord)) + Pages(plan.control_bytes) +
         plan.channel_count * member_count * Pages(plan.staging_bytes_per_member);
}

ShmNode::ShmNode(SharedSegment segment, std::vector<Descriptor> events, const SegmentPlan& plan, int member)
    : segment_(std::move(segment)), events_(std::move(events)), plan_(plan), member_(member) {
  plan_.staging_bytes_per_member = Pages(plan.staging_bytes_per_member);
  doorbells_ = reinterpret_cast<DoorbellWord*>(segment_.data() + kHeaderBytes);
  control_memory_ = segment_.data() + kHeaderBytes + Pages(events_.size() * sizeof(DoorbellWord));
  staging_ = control_memory_ + Pages(plan.control_bytes);
}

AbortWord& ShmNode::abort_word() const { return *reinterpret_cast<AbortWord*>(segment_.data()); }

// One fence serves all doorbells. A node of one needs none.
void ShmNode::RingOthers() const {
  if (count() == 1) return;
  RingFence();
  for (int m = 0; m < count(); ++m) {
    if (m != member_) Ring(doorbells_[m], events_[static_cast<size_t>(m)].get());
  }
}

// `member` may be this rank itself, when another of its threads sleeps.
void ShmNode::RingMember(int member) const {
  RingFence();
  Ring(doorbells_[member], events_[static_cast<size_t>(member)].get());
}

}  // namespace farandole
