// Exchanges between the nodes of a process set: for each shard that this member owns, a schedule with the shard's
// owners in the other nodes; for alltoall, one with all positions elsewhere. The runners of an operation go on side by
// side: no two shards share a link (layout.h). Resumable; the driver alone uses it.
//
// An operation in rounds adds the same shards in each round. Its rounds overlap, since each shard's runner takes them
// as chunks.
#pragma once

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

inline bool ScalesBeforeExchange(const Task& task) { return ScalesBeforeExchange(task.dtype, task.reduce); }

RunPlan PlanOfReduction(const Task& task, Scale scale);  // without its blocks

class ShardExchange {
 public:
  // kAllgather: one block per node; this node's block is in place, and goes to all others. kReduceScatter: one block
  // per node; this node's block is reduced, the others are only read. kAlltoall: one block per position that goes
  // there, then one per position that comes from there; empty for those of this node.
  enum class Kind { kAllreduce, kBroadcast, kAllgather, kReduceScatter, kAlltoall };

  // REQUIRES: *set outlives this.
  ShardExchange(World* world, const ProcessSet* set);

  // Not copied: runners point at schedules kept here.
  ShardExchange(const ShardExchange&) = delete;
  ShardExchange& operator=(const ShardExchange&) = delete;

  const Partition& partition() const { return partition_; }

  // Before the first exchange of a task, whose shards all use this algorithm and whose messages get this tag.
  void Begin(Algorithm algorithm, const MessageTag& tag);
  // The operation that follows consists of so many rounds, of which at most `max_at_once` are added and not done at
  // any time; likewise the other operations of the task. REQUIRES: done().
  void BeginRounds(uint64_t rounds, uint64_t max_at_once);
  uint64_t rounds_done() const;  // meaningless for a member without shards

  // Reduces element_count elements, shard after shard. This member holds the elements that it owns at source (null: at
  // data), and gets the results at data.
  void Allreduce(const Task& task, Scale scale, std::byte* data, int64_t element_count, int shard_count,
                 const std::byte* source = nullptr);
  // Spreads size_bytes from the node root_node; data as above, in bytes.
  void Broadcast(std::byte* data, int64_t size_bytes, int shard_count, int root_node);
  // Adds one shard that this member owns. detail: of a broadcast, the root's node.
  void Add(Kind kind, int shard, int shard_count, RunPlan plan, int detail = 0);

  // Whether an allgather passes blocks on, so that they need memory.
  bool PassesBlocksOn() const { return algorithm_ == Algorithm::kRing; }

  Status Advance(bool* moved);
  bool done() const { return running_.empty(); }
  std::vector<int> WaitingOn() const;  // ranks of the world whose data the exchange waits for
  void Abort() { running_.clear(); }

 private:
  using RunnerKey = std::tuple<Kind, int, int, int, bool>;  // algorithm or root node, shard, shard count, in rounds
  struct Prepared {
    Schedule schedule;
    std::vector<int> ranks;  // of the world, by participant
    uint32_t channel = 0;
    std::unique_ptr<Runner> runner;
  };

  Prepared* Prepare(Kind kind, int shard, int shard_count, int detail);
  void AddVector(Kind kind, RunPlan plan, std::byte* data, const std::byte* source, int64_t element_count,
                 int shard_count, int detail);
  void Start(Prepared* prepared, RunPlan plan);
  Schedule MakeSchedule(Kind kind, int detail) const;
  std::vector<int> OwnersOf(int shard, int shard_count) const;

  World* world_;
  const ProcessSet* set_;
  Partition partition_;
  Algorithm algorithm_ = Algorithm::kAuto;  // of the current operation
  MessageTag tag_;
  uint64_t rounds_ = 0, max_at_once_ = 0;  // 0: the operation has no rounds
  std::map<RunnerKey, Prepared> prepared_;
  std::vector<Prepared*> running_;
  std::vector<Transport::Completion> completions_;  // kept for its memory
};

}  // namespace farandole
