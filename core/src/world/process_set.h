// Ranks that do collectives with each other: who they are, and who of them shares memory with whom. Set 0 is all ranks.
//
// In a set a rank has a position, its place among the set's ranks in ascending order; roots, splits and gathered rows
// are counted by position. `layout` is in positions, too; `ranks` leads back to the world.
//
// Channels. Sets that overlap may be at different places in their work, so each has staging of its own in the arena:
// its channel. Sets without a common rank share one. A channel that was used before is used on by a set with a higher
// id, whose rounds are numbered from FirstRound(id), so what the old set left in its counters lies in the past.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "world/layout.h"

namespace farandole {

// Sets that share a rank, at one time, the world included. Memory of a channel that is not used costs address space
// only.
inline constexpr int kMaxChannels = 64;

struct ProcessSet {
  int id = 0;
  std::vector<int> ranks;  // ascending
  Layout layout;           // of positions
  int channel = 0;
  int position = -1;  // this rank's; -1 when it is not in the set

  bool contains_me() const { return position >= 0; }
  int size() const { return static_cast<int>(ranks.size()); }
  int PositionOf(int rank) const;  // -1 when it is not in the set
  // The set's members share memory, all of them.
  bool local() const { return layout.group_count() == 1; }
};

// REQUIRES: ranks ascend and are in the layout.
ProcessSet MakeProcessSet(const Layout& world, int my_rank, int id, std::vector<int> ranks, int channel);
ProcessSet WholeWorld(const Layout& world, int my_rank);

inline uint64_t FirstRound(int set_id) { return static_cast<uint64_t>(set_id) << 40; }

}  // namespace farandole
