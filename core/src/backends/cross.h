// Exchanges between the groups of a process set: for each lane that this member carries, a schedule over the links to
// the lane's carriers in the other groups; for alltoall, one over the links to all positions elsewhere. Resumable; the
// driver alone uses it.
//
// Jobs are taken one after the other in the order in which they were added, lanes lowest first, on every rank: where
// groups differ in size two lanes may share a link.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithms/choose.h"
#include "algorithms/run.h"
#include "backends/backend.h"
#include "backends/topology.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

inline bool ScalesBeforeCrossing(const Work& work) { return ScalesBeforeCrossing(work.dtype, work.reduce); }

class CrossExchange {
 public:
  // REQUIRES: *set outlives this.
  CrossExchange(World* world, const ProcessSet* set, const Settings& settings);

  // Not copied: runners point at schedules kept here.
  CrossExchange(const CrossExchange&) = delete;
  CrossExchange& operator=(const CrossExchange&) = delete;

  const Topology& topology() const { return topology_; }

  // Reduces element_count elements, of which this member holds those that it carries at source (null: at data), lane
  // after lane, and gets them at data.
  void Allreduce(const Work& work, Scale scale, std::byte* data, int64_t element_count, int lane_count,
                 const std::byte* source = nullptr);
  // Spreads size_bytes from the group root_group; data as above, in bytes.
  void Broadcast(std::byte* data, int64_t size_bytes, int lane_count, int root_group);
  // One block per group, of one lane that this member carries. Its own is in place, and goes to all.
  void Allgather(int lane, int lane_count, std::vector<BlockMemory> blocks);
  // Unless this is kDirect, blocks are passed on, so they need memory.
  Algorithm AllgatherOf(size_t largest_block_bytes) const;
  // One block per group, of one lane that this member carries. Its own is reduced, the others are only read.
  void ReduceScatter(const Work& work, Scale scale, int lane, int lane_count, std::vector<BlockMemory> blocks);
  // One block per position that goes there, then one per position that comes from there; empty for those of this group.
  void Alltoall(std::vector<BlockMemory> blocks);

  Status Advance(bool* moved);
  bool done() const { return jobs_.empty(); }
  // Counted over all operations; the first jobs_done() of those added are done.
  uint64_t jobs_added() const { return jobs_added_; }
  uint64_t jobs_done() const { return jobs_added_ - jobs_.size(); }
  std::vector<int> Laggards() const;  // ranks of the world whose data the running exchange waits for
  void Abort() { jobs_.clear(); }

 private:
  enum class Kind { kAllreduce, kBroadcast, kAllgather, kReduceScatter, kAlltoall };
  // What a runner is made for: kind, algorithm or root group, lane, lane count.
  using RunnerKey = std::tuple<Kind, int, int, int>;
  struct Prepared {
    Schedule schedule;
    std::vector<int> ranks;  // of the world, by participant
    std::unique_ptr<Runner> runner;
  };
  struct Job {
    Prepared* prepared;
    RunPlan plan;
  };

  void Add(const RunnerKey& key, RunPlan plan);
  void StartFirst();
  Schedule MakeSchedule(Kind kind, int detail) const;
  std::vector<int> CarriersOf(int lane, int lane_count) const;
  std::vector<Link*> LinksTo(const std::vector<int>& ranks) const;
  LaneRange Lanes(int lane_count) const { return LanesOf(topology_.member, topology_.member_count(), lane_count); }

  World* world_;
  const ProcessSet* set_;
  Topology topology_;
  Algorithm forced_;
  bool any_order_;
  std::map<RunnerKey, Prepared> prepared_;
  std::deque<Job> jobs_;  // the first is running
  uint64_t jobs_added_ = 0;
};

}  // namespace farandole
