// This rank's shared-memory node: the memory that its members share and the doorbells that wake them. A rank without
// shared memory is the only member of its node, whose memory has the same layout, so the layers above need no second
// case.
//
//   segment   [ header: abort word | doorbell words, one per member | control memory | channel 0 | channel 1 | ... ]
//   channel   [ staging of member 0 | of member 1 | ... ]
//
// The layers above define the size and the use of both: the controller keeps its counters and its log in control
// memory, the data paths their chunks in staging.
//
// The World owns the node, and the node its segment and events. Any thread may use it, since it changes only atomic
// words in the shared memory.
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

// The reason why the epoch ended, for the whole node. The first writer wins; readers see all fields or none. A writer
// that dies while it writes leaves `state` 1 forever. So a rank that finds state 1 waits a moment, and then acts on
// what it knows.
struct AbortWord {
  std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 set
  int32_t code;
  int32_t culprit;  // rank, or -1
  char text[2000];  // the message of a deadline names calls and places

  bool set() const { return state.load(std::memory_order_acquire) == 2; }
  void Set(Code code, int culprit, const std::string& text);
};

struct SegmentPlan {
  size_t control_bytes = 0;
  size_t staging_bytes_per_member = 0;
  size_t channel_count = 1;  // one staging area for each channel, see process_set.h
};

class ShmNode {
 public:
  static size_t SegmentBytes(const SegmentPlan& plan, size_t member_count);

  // events[m] wakes member m. REQUIRES: the segment was made with SegmentBytes of the same plan and as many members.
  ShmNode(SharedSegment segment, std::vector<Descriptor> events, const SegmentPlan& plan, int member);

  int member() const { return member_; }
  int count() const { return static_cast<int>(events_.size()); }
  std::byte* control_memory() const { return control_memory_; }
  std::byte* staging(int channel, int member) const {
    return staging_ + plan_.staging_bytes_per_member * static_cast<size_t>(channel * count() + member);
  }
  AbortWord& abort_word() const;
  size_t segment_bytes() const { return segment_.size_bytes(); }
  // The event and the doorbell word on which this rank sleeps.
  int event() const { return events_[static_cast<size_t>(member_)].get(); }
  DoorbellWord& doorbell() const { return doorbells_[member_]; }

  // Wakes the other members that sleep. REQUIRES: the caller has written before what they must see.
  void RingOthers() const;
  void RingMember(int member) const;
  void RingSelf() const { RingMember(member_); }

 private:
  SharedSegment segment_;
  std::vector<Descriptor> events_;
  SegmentPlan plan_;
  int member_;
  DoorbellWord* doorbells_;
  std::byte* control_memory_;
  std::byte* staging_;
};

}  // namespace farandole
