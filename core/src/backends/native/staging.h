// The memory through which members of one group pass tensor data to each other, and the counters that say how far each
// has come.
//
// Work is cut into rounds, numbered on and on across operations. A round uses slot (round mod 3) of every member's
// staging:
//
//   member   [ published | combined ]  [ slot 0 | slot 1 | slot 2 ]  [ result 0 | result 1 | result 2 ]
//
//   put(t)       writes my slot t, then published = t + 1
//   combine(t)   reads the others' slots t once they are published, may write my result t, then combined = t + 1
//   finish(t)    reads the others' results t once they are combined
//
// Every operation takes its rounds in the order put(t+1), combine(t), finish(t-1) (staged.h), and this is why three
// slots are enough without any further signal, and why an operation of another kind or size may follow at once:
// - A slot is overwritten by put(t+3). Whoever lets others read its slots waits in finish(t) until all have combined t.
// - A result is written by combine(t+3), only after all have published t+3, and a member publishes t+3 after it
// finished t. Fixed slots matter: rounds of any size and kind use the same places, so no two operations overlap
// differently.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "world/group.h"

namespace farandole {

inline constexpr size_t kSlotBytes =
    512 << 10;  // half of a common L2: the slot and what it is combined with stay there

class Staging {
 public:
  static size_t BytesPerMember();
  explicit Staging(const Group* group) : group_(group) {}

  int member() const { return group_->member(); }
  int count() const { return group_->count(); }

  std::byte* slot(int member, uint64_t round) const;
  std::byte* result(int member, uint64_t round) const;

  // Tell the others that this member has published or combined all rounds before `end`.
  void Publish(uint64_t end) const;
  void Combined(uint64_t end) const;

  bool HasPublished(int member, uint64_t end) const;
  bool HasCombined(int member, uint64_t end) const;
  bool AllPublished(uint64_t end) const;
  bool AllCombined(uint64_t end) const;
  std::vector<int> Laggards() const;  // members that have published or combined less than this one

 private:
  struct Counters;
  Counters* counters(int member) const;

  const Group* group_;
};

}  // namespace farandole
