// ProcessSet: ranks that do collectives with each other, and who of them shares memory with whom. Set 0 is all ranks.
//
// In a set a rank has a position, its place among the set's ranks in ascending order; roots, splits and gathered rows
// are counted by position. `layout` is in positions, too; `ranks` leads back to the world.
//
// Channels. Sets that overlap may be at different places in their work, so each has staging of its own in the segment:
// its channel. Sets without a common rank share one. A channel that was used before is used on by a set with a higher
// id, whose rounds are numbered from FirstRound(id), so what the old set left in its counters lies in the past.
//
// ProcessSets: all of a job, kept alike by every rank and by the coordinator; ids are given in the order of the log. A
// set keeps its id for good, and an id that was removed is not given out again. A channel is: a new set takes the
// lowest that no living set with a common rank has.
//
// Values; one thread at a time, and any thread once they do not change.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
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

using ProcessSetPtr = std::shared_ptr<const ProcessSet>;

Status NoProcessSet(int id, int my_rank);                     // for who wants to use one
Status InUse(int id, const std::string& title, int my_rank);  // for who wants to remove one

inline constexpr int kMaxSetId = (1 << 20) - 1;  // a word of the log has 20 bits for it
// How far one rank can be behind another: every set asks all ranks.
inline constexpr int kMaxSetsAhead = 4096;

class ProcessSets {
 public:
  // Set 0, all ranks, is there from the start.
  ProcessSets(const Layout& world, int my_rank);

  // Null when there is no such set, or no longer.
  ProcessSetPtr Find(int id) const;
  // The same on every rank, so whoever is asked answers for all. kInvalid: its ranks are in as many sets as there are
  // channels, or the job has made a million. REQUIRES: ranks ascend.
  Status CanAdd(const std::vector<int>& ranks) const;
  Status CanRemove(int id) const;  // kInvalid: there is none
  // The new set's id, or -1 when it cannot be added.
  int Add(std::vector<int> ranks);
  void Remove(int id);
  bool IsFuture(int id) const { return id >= next_id_ && id <= next_id_ + kMaxSetsAhead; }

 private:
  int FreeChannel(const std::vector<int>& ranks) const;  // -1: none

  Layout world_;
  int my_rank_;
  std::map<int, ProcessSetPtr> sets_;
  int next_id_ = 1;
};

}  // namespace farandole
