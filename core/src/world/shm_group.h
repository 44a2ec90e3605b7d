// This rank's shared-memory group: the memory its members share and the bells that wake them. A rank without shared
// memory has a group of its own, with the same memory layout and no other member to ring, so that the layers above know
// one case only.
//
//   segment   [ header: abort word | doorbell words, one per member | control memory | channel 0 | channel 1 | ... ]
//   channel   [ staging of member 0 | of member 1 | ... ]
//
// The layers above say how large control memory and staging must be, and what they mean: the controller keeps its
// counters and its log in the first, the data paths their chunks in the second.
//
// The World owns the group, and the group its segment and events. Any thread may use it: nothing changes but words in
// the shared memory, which are atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/segment.h"
#include "world/layout.h"

namespace farandole {

// Why an epoch ended for the whole group. The first writer wins; readers see all of it or nothing. A writer that dies
// half way leaves it unreadable for good. So a rank that finds it so waits a moment, and then acts on what it knows.
struct AbortWord {
  std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 set
  int32_t code;
  int32_t culprit;  // rank, or -1
  char text[2000];  // a deadline names calls and places

  bool set() const { return state.load(std::memory_order_acquire) == 2; }
  void Set(Code code, int culprit, const std::string& text);
};

struct SegmentPlan {
  size_t control_bytes = 0;
  size_t staging_bytes_per_member = 0;
  size_t channel_count = 1;  // process sets that overlap each have staging of their own; see process_set.h
};

class ShmGroup {
 public:
  static size_t SegmentBytes(const SegmentPlan& plan, size_t member_count);

  // events[m] wakes member m. REQUIRES: the segment was made with SegmentBytes of the same plan and as many members.
  ShmGroup(SharedSegment segment, std::vector<Descriptor> events, const SegmentPlan& plan, int member);

  int member() const { return member_; }
  int count() const { return static_cast<int>(events_.size()); }
  std::byte* control_memory() const { return control_memory_; }
  std::byte* staging(int channel, int member) const {
    return staging_ + plan_.staging_bytes_per_member * static_cast<size_t>(channel * count() + member);
  }
  AbortWord& abort_word() const;
  size_t segment_bytes() const { return segment_.size_bytes(); }
  // This rank's own event and doorbell word, on which it sleeps.
  int event() const { return events_[static_cast<size_t>(member_)].get(); }
  DoorbellWord& bell() const { return bells_[member_]; }

  // Wakes the other members that sleep. REQUIRES: what they have to see was written before.
  void RingOthers() const;
  void RingMember(int member) const;
  void RingSelf() const { RingMember(member_); }

 private:
  SharedSegment segment_;
  std::vector<Descriptor> events_;
  SegmentPlan plan_;
  int member_;
  DoorbellWord* bells_;
  std::byte* control_memory_;
  std::byte* staging_;
};

}  // namespace farandole
