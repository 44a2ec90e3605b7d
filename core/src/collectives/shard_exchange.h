// Exchanges between the groups of a process set: for each shard that this member owns, a schedule with the shard's
// owners in the other groups; for alltoall, one with all positions elsewhere. Resumable; the
// driver alone uses it.
//
// Every rank runs its jobs one after the other in the order in which they were added, lowest shard first, since two
// shards may share a link where groups differ in size.
//
// An operation of several rounds adds the same shards in each round. Its rounds overlap: each shard has a runner that
// takes the rounds as chunks, and the runners of different shards go on side by side. Where two shards share a link, or
// the schedule needs more rounds at once than there are, each round is a job, after the one before.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithms/partition.h"
#include "algorithms/plan.h"
#include "collectives/runner.h"
#include "collectives/task.h"
#include "world/world.h"

namespace farandole {

inline bool ScalesBeforeCrossing(const Task& task) { return ScalesBeforeCrossing(task.dtype, task.reduce); }

class ShardExchange {
 public:
  // REQUIRES: *set outlives this.
  ShardExchange(World* world, const ProcessSet* set);

  // Not copied: runners point at schedules kept here.
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  const Partition& partition() const { return partition_; }

  // Before the first job of an operation, whose shards all use this algorithm and whose messages get this tag.
  void Begin(Algorithm algorithm, const MessageTag& tag);

  // Reduces element_count elements, shard after shard. This member holds the elements that it owns at source (null: at
  // data), and gets the results at data.
  void Allreduce(const Task& task, Scale scale, std::byte* data, int64_t element_count, int shard_count,
                 const std::byte* source = nullptr);
  // Spreads size_bytes from the group root_group; data as above, in bytes.
  void Broadcast(std::byte* data, int64_t size_bytes, int shard_count, int root_group);
  // One block per group, of one shard that this member owns. This group's block is in place, and goes to all others.
  void Allgather(int shard, int shard_count, std::vector<BlockMemory> blocks);
  // The operation that follows consists of so many rounds, of which at most `most_at_once` are added and not done at
  // any time. Each round adds jobs, for the same shards in each, and ends with EndRound. REQUIRES: done().
  void BeginRounds(uint64_t rounds, uint64_t most_at_once);
  void EndRound();
  uint64_t rounds_done() const;

  // Whether an allgather passes blocks on, so that they need memory.
  bool PassesBlocksOn() const { return algorithm_ == Algorithm::kRing; }
  // One block per group, of one shard that this member owns. This group's block is reduced, the others are only read.
  void ReduceScatter(const Task& task, Scale scale, int shard, int shard_count, std::vector<BlockMemory> blocks);
  // One block per position that goes there, then one per position that comes from there; empty for those of this group.
  void Alltoall(std::vector<BlockMemory> blocks);

  Status Advance(bool* moved);
  bool done() const { return jobs_.empty() && streams_.empty(); }
  std::vector<int> WaitingOn() const;  // ranks of the world whose data the running exchange waits for
  void Abort();

 private:
  enum class Kind { kAllreduce, kBroadcast, kAllgather, kReduceScatter, kAlltoall };
  struct RunnerKey {
    Kind kind;
    int detail;  // algorithm or root group
    int shard;
    int shard_count;
    bool in_rounds = false;
    bool operator<(const RunnerKey& other) const { return AsTuple() < other.AsTuple(); }
    std::tuple<Kind, int, int, int, bool> AsTuple() const { return {kind, detail, shard, shard_count, in_rounds}; }
  };
  struct Prepared {
    Schedule schedule;
    std::vector<int> ranks;  // of the world, by participant
    uint32_t channel = 0;
    std::unique_ptr<Runner> runner;
  };
  struct Job {
    Prepared* prepared;
    RunPlan plan;
  };

  void Add(const RunnerKey& key, RunPlan plan);
  Prepared* Prepare(const RunnerKey& key);
  void AddToStream(RunnerKey key, RunPlan plan);
  bool SharesLinks() const;
  bool FitsRounds(uint64_t most_at_once) const;
  // Adds that move nothing are left out, except where each round has to have the same.
  bool LeavesOut(int64_t size) const { return size == 0 && !adds_to_streams_; }
  Status AdvanceJobs(bool* moved);
  Status AdvanceStreams(bool* moved);
  static void AddWaits(const Prepared& running, std::vector<int>* ranks);
  void StartFirst();
  Schedule MakeSchedule(Kind kind, int detail) const;
  std::vector<int> OwnersOf(int shard, int shard_count) const;
  ShardRange Shards(int shard_count) const {
    return ShardsOf(partition_.member, partition_.member_count(), shard_count);
  }
  MessageTag TagOf(const Prepared& prepared) const {
    MessageTag tag = tag_;
    tag.channel = prepared.channel;
    return tag;
  }

  World* world_;
  const ProcessSet* set_;
  Partition partition_;
  Algorithm algorithm_ = Algorithm::kAuto;  // of the current operation
  std::map<RunnerKey, Prepared> prepared_;
  MessageTag tag_;
  const bool shares_links_;  // two shards do; equal on all ranks
  std::deque<Job> jobs_;     // the first is running
  uint64_t jobs_added_ = 0, jobs_ended_ = 0;

  // Of an operation in rounds.
  uint64_t rounds_ = 0, rounds_added_ = 0, most_at_once_ = 0;
  bool in_streams_ = false;          // else its rounds are jobs
  bool adds_to_streams_ = false;     // until the last round is added
  std::vector<Prepared*> streams_;   // in the order of Add in each round; all run
  size_t next_stream_ = 0;           // of the round that is being added
  std::deque<uint64_t> round_ends_;  // jobs added by the end of each round that is not done
};

}  // namespace farandole
