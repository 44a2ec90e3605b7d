// Exchanges between the groups of a process set: for each shard that this member owns, a schedule over the links to
// the shard's owners in the other groups; for alltoall, one over the links to all positions elsewhere. Resumable; the
// driver alone uses it.
//
// Every rank runs its jobs one after the other in the order in which they were added, lowest shard first, since two
// shards may share a link where groups differ in size.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithms/choose_path.h"
#include "algorithms/partition.h"
#include "collectives/runner.h"
#include "collectives/task.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

inline bool ScalesBeforeCrossing(const Task& task) { return ScalesBeforeCrossing(task.dtype, task.reduce); }

class ShardExchange {
 public:
  // REQUIRES: *set outlives this.
  ShardExchange(World* world, const ProcessSet* set, const Settings& settings);

  // Not copied: runners point at schedules kept here.
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  const Partition& partition() const { return partition_; }

  // Reduces element_count elements, shard after shard. This member holds the elements that it owns at source (null: at
  // data), and gets the results at data.
  void Allreduce(const Task& task, Scale scale, std::byte* data, int64_t element_count, int shard_count,
                 const std::byte* source = nullptr);
  // Spreads size_bytes from the group root_group; data as above, in bytes.
  void Broadcast(std::byte* data, int64_t size_bytes, int shard_count, int root_group);
  // One block per group, of one shard that this member owns. This group's block is in place, and goes to all others.
  void Allgather(int shard, int shard_count, std::vector<BlockMemory> blocks);
  // Unless this is kDirect, blocks are passed on, so they need memory.
  Algorithm AllgatherOf(size_t largest_block_bytes) const;
  // One block per group, of one shard that this member owns. This group's block is reduced, the others are only read.
  void ReduceScatter(const Task& task, Scale scale, int shard, int shard_count, std::vector<BlockMemory> blocks);
  // One block per position that goes there, then one per position that comes from there; empty for those of this group.
  void Alltoall(std::vector<BlockMemory> blocks);

  Status Advance(bool* moved);
  bool done() const { return jobs_.empty(); }
  // Counts over all operations. The first jobs_done() jobs that were added are done.
  uint64_t jobs_added() const { return jobs_added_; }
  uint64_t jobs_done() const { return jobs_added_ - jobs_.size(); }
  std::vector<int> WaitingOn() const;  // ranks of the world whose data the running exchange waits for
  void Abort() { jobs_.clear(); }

 private:
  enum class Kind { kAllreduce, kBroadcast, kAllgather, kReduceScatter, kAlltoall };
  // Identifies a runner: kind, algorithm or root group, shard, shard count.
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
  std::vector<int> OwnersOf(int shard, int shard_count) const;
  std::vector<Link*> LinksTo(const std::vector<int>& ranks) const;
  ShardRange Shards(int shard_count) const {
    return ShardsOf(partition_.member, partition_.member_count(), shard_count);
  }

  World* world_;
  const ProcessSet* set_;
  Partition partition_;
  Algorithm forced_;
  bool any_order_;
  std::map<RunnerKey, Prepared> prepared_;
  std::deque<Job> jobs_;  // the first is running
  uint64_t jobs_added_ = 0;
};

}  // namespace farandole
