// The memory through which the members of a process set that share a segment pass tensor data to each other, and the
// counters that say how far each has come. Every set has its own, on its channel (process_set.h); members are counted
// within the set.
//
// A task is cut into rounds, numbered on and on across operations. A round uses slot (round mod 3) of every member's
// staging:
//
//   member   [ user | published | combined ]  [ slot 0 | slot 1 | slot 2 ]  [ result 0 | result 1 | result 2 ]
//
//   put(t)       writes my slot t, then published = t + 1
//   combine(t)   reads the others' slots t once they are published, may write my result t, then combined = t + 1
//   finish(t)    reads the others' results t once they are combined
//
// Every operation takes its rounds in the order put(t+1), combine(t), finish(t-1) (stages.h), and this is why three
// slots are enough without any further signal, and why an operation of another kind or size may follow at once:
// - A slot is overwritten by put(t+3). Whoever lets others read its slots waits in finish(t) until all have combined t.
// - A result is written by combine(t+3), only after all have published t+3, and a member publishes t+3 after it
//   finished t. Fixed slots matter: rounds of any size and kind use the same places, so no two operations overlap
//   differently.
// - Where there are two members, combine(t) may write its results into the other's slot t (allreduce.cc). The other
//   alone reads them there, in finish(t), before its own put(t+3). Of three members, one may be late to read what lies
//   in the slot of another, who would not know.
//
// When a channel is used on by another set, a member of the old one that is not in the new one may still read here. So
// `user` says which set a member is at, and before it writes for a new set it waits until nobody is at its old one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "world/shm_group.h"

namespace farandole {

inline constexpr size_t kSlotBytes =
    512 << 10;  // half of a common L2: the slot and what it is combined with stay there

inline uint64_t SlotsFor(uint64_t size_bytes) { return (size_bytes + kSlotBytes - 1) / kSlotBytes; }

class Staging {
 public:
  static size_t BytesPerMember();
  // segment_members[m] is the place of member m in the segment; `member` is this rank's m.
  Staging(const ShmGroup* group, int channel, int set_id, std::vector<int> segment_members, int member);

  int member() const { return member_; }
  int count() const { return static_cast<int>(segment_members_.size()); }

  // No member of the segment is at the set `old_set_id` on this channel any more.
  bool HasBeenLeft(int old_set_id) const;
  void Enter() const;  // before the first round
  void Leave() const;  // after the last round of the last operation

  std::byte* slot(int member, uint64_t round) const;
  std::byte* result(int member, uint64_t round) const;

  // Tell the others that this member has published or combined all rounds before `end`.
  void Publish(uint64_t end) const;
  void Combined(uint64_t end) const;

  bool HasPublished(int member, uint64_t end) const;
  bool HasCombined(int member, uint64_t end) const;
  bool AllPublished(uint64_t end) const;
  bool AllCombined(uint64_t end) const;
  std::vector<int> WaitingOn() const;  // members that have published or combined less than this one

 private:
  struct Counters;
  Counters* counters(int member) const { return segment_counters(segment_members_[static_cast<size_t>(member)]); }
  Counters* segment_counters(int segment_member) const;
  void RingOthers() const;

  const ShmGroup* group_;
  int channel_;
  uint64_t user_;  // what stands in `user` while this set is at work
  std::vector<int> segment_members_;
  int member_;
};

}  // namespace farandole
