// ProcessSet: ranks that do collectives with each other, and which of them share memory. Set 0 has all ranks.
//
// In a set a rank has a position, its place among the set's ranks in ascending order; roots, splits and gathered rows
// are counted by position. `layout` is in positions, too; `ranks` maps a position to a rank of the world.
//
// Channels. Sets with a common rank may run different operations at one time, so each has its own staging in the
// segment, which is its channel. Sets without a common rank may share a channel. The channel of a removed set goes to a
// set with a higher id, whose rounds are numbered from FirstRound(id). So the old set's numbers in the counters are
// lower than every round of the new set, and cannot be taken for one.
//
// ProcessSets: all sets of a job. Every rank and the coordinator have the same. Ids follow the order of the log and are
// never used twice. Channels are reused: a new set takes the lowest that no present set with a common rank has.
//
// The negotiation owns a ProcessSets; operations under way share the ProcessSet that they use. One thread at a time
// changes a ProcessSets; a ProcessSet does not change, so any thread may read it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "world/layout.h"

namespace farandole {

// The most sets that one rank can be in at one time, including the world. An unused channel costs only address space.
inline constexpr int kMaxChannels = 64;

struct ProcessSet {
  int id = 0;
  std::vector<int> ranks;  // ascending
  Layout layout;           // of positions
  int channel = 0;
  int position = -1;  // of this rank; -1 when it is not in the set

  bool contains_me() const { return position >= 0; }
  int size() const { return static_cast<int>(ranks.size()); }
  int PositionOf(int rank) const;  // -1 when it is not in the set
  // The first member of a node, by the node's number in the layout, speaks for the node in early operations.
  int LeaderOf(int node) const { return ranks[static_cast<size_t>(layout.RankOf(node, 0))]; }
  // REQUIRES (both): contains_me().
  int node() const { return layout.node_of[static_cast<size_t>(position)]; }
  int member() const { return layout.member_of[static_cast<size_t>(position)]; }
  // All members of the set share memory.
  bool local() const { return layout.node_count() == 1; }
};

// REQUIRES: ranks ascend and are in the layout.
ProcessSet MakeProcessSet(const Layout& world, int my_rank, int id, std::vector<int> ranks, int channel);
ProcessSet WholeWorld(const Layout& world, int my_rank);

inline uint64_t FirstRound(int set_id) { return static_cast<uint64_t>(set_id) << 40; }

using ProcessSetPtr = std::shared_ptr<const ProcessSet>;

// The errors for a set that does not exist, and for the removal of a set that the operation `title` still uses.
Status NoProcessSet(int id, int my_rank);
Status InUse(int id, const std::string& title, int my_rank);

inline constexpr int kMaxSetId = (1 << 20) - 1;  // a word of the log has 20 bits for the id
// The most sets by which one rank can be behind another. A set is made by an operation under an id (there are kMaxIds),
// which is used again only after every rank has read that operation from the log.
inline constexpr int kMaxSetsAhead = 4096;

class ProcessSets {
 public:
  // Begins with set 0, which has all ranks.
  ProcessSets(const Layout& world, int my_rank);

  // Null for an id that is not used yet, or whose set is removed.
  ProcessSetPtr Find(int id) const;
  // The answer is the same on every rank, so one rank can decide for all. kInvalid: these ranks are in as many sets as
  // there are channels, or the job has made a million sets. REQUIRES: ranks ascend.
  Status CanAdd(const std::vector<int>& ranks) const;
  Status CanRemove(int id) const;  // kInvalid: no such set
  // The new set's id, or -1 when it cannot be added.
  int Add(std::vector<int> ranks);
  void Remove(int id);
  // Returns whether another rank may already have a set with this id, which this rank will make later.
  bool IsFuture(int id) const { return id >= next_id_ && id <= next_id_ + kMaxSetsAhead; }

 private:
  int FreeChannel(const std::vector<int>& ranks) const;  // -1: no channel is free

  Layout world_;
  int my_rank_;
  std::map<int, ProcessSetPtr> sets_;
  int next_id_ = 1;
};

}  // namespace farandole
