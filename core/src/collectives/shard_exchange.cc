#include "collectives/shard_exchange.h"

#include <algorithm>

#include "algorithms/schedule.h"
#include "common/failpoint.h"

namespace farandole {

RunPlan PlanOfReduction(const Task& task, Scale scale) {
  RunPlan plan;
  plan.dtype = task.dtype;
  plan.reduce = task.reduce;
  plan.scale = scale;
  return plan;
}

ShardExchange::ShardExchange(World* world, const ProcessSet* set)
    : world_(world),
      set_(set),
      partition_{&set->layout, set->layout.node_of[static_cast<size_t>(set->position)],
                 set->layout.member_of[static_cast<size_t>(set->position)]} {}

void ShardExchange::Begin(Algorithm algorithm, const MessageTag& tag) {
  algorithm_ = algorithm;
  tag_ = tag;
  rounds_ = 0;
}

void ShardExchange::BeginRounds(uint64_t rounds, uint64_t max_at_once) {
  rounds_ = rounds;
  max_at_once_ = max_at_once;
}

uint64_t ShardExchange::rounds_done() const {
  int64_t done = static_cast<int64_t>(rounds_);
  for (const Prepared* each : running_) done = std::min(done, each->runner->rounds_done());
  return static_cast<uint64_t>(done);
}

// ---- what is added

void ShardExchange::Allreduce(const Task& task, Scale scale, std::byte* data, int64_t element_count, int shard_count,
                              const std::byte* source) {
  AddVector(Kind::kAllreduce, PlanOfReduction(task, scale), data, source, element_count, shard_count, 0);
}

void ShardExchange::Broadcast(std::byte* data, int64_t size_bytes, int shard_count, int root_node) {
  AddVector(Kind::kBroadcast, {}, data, nullptr, size_bytes, shard_count, root_node);
}

// Adds the shards of a vector that this member owns.
void ShardExchange::AddVector(Kind kind, RunPlan plan, std::byte* data, const std::byte* source, int64_t element_count,
                              int shard_count, int detail) {
  const size_t width = SizeOf(plan.dtype);
  const ShardRange shards = ShardsOf(partition_.member, partition_.member_count(), shard_count);
  if (source == nullptr) source = data;
  for (int shard = shards.begin; shard < shards.end; ++shard) {
    Prepared* const prepared = Prepare(kind, shard, shard_count, detail);
    const Range elements = BlockRange(element_count, width, shard, shard_count);
    const size_t size_bytes = static_cast<size_t>(elements.size()) * width;
    plan.blocks = CutBlocks(source, data, elements.size(), width, prepared->schedule.block_count);
    Start(prepared, plan);
    source += size_bytes;
    data += size_bytes;
  }
}

void ShardExchange::Add(Kind kind, int shard, int shard_count, RunPlan plan, int detail) {
  Start(Prepare(kind, shard, shard_count, detail), std::move(plan));
}

ShardExchange::Prepared* ShardExchange::Prepare(Kind kind, int shard, int shard_count, int detail) {
  const bool in_rounds = rounds_ > 0;
  if (kind == Kind::kAllreduce || kind == Kind::kAllgather) detail = static_cast<int>(algorithm_);
  Prepared& prepared = prepared_[{kind, detail, shard, shard_count, in_rounds}];
  if (!prepared.runner) {
    prepared.schedule = MakeSchedule(kind, detail);
    prepared.ranks = kind == Kind::kAlltoall ? set_->ranks : OwnersOf(shard, shard_count);
    prepared.channel = static_cast<uint32_t>(set_->channel << 16 | shard);
    prepared.runner = std::make_unique<Runner>(&prepared.schedule, world_->transport.get(), prepared.ranks,
                                               in_rounds ? kRoundsUnderWay : kChunksUnderWay);
  }
  return &prepared;
}

// The first round starts the runner.
void ShardExchange::Start(Prepared* prepared, RunPlan plan) {
  MessageTag tag = tag_;
  tag.channel = prepared->channel;
  Runner* const runner = prepared->runner.get();
  const bool is_new = std::find(running_.begin(), running_.end(), prepared) == running_.end();
  if (is_new) running_.push_back(prepared);
  if (rounds_ == 0) return runner->Start(std::move(plan), tag);
  if (is_new) runner->StartRounds(static_cast<int64_t>(rounds_), static_cast<int64_t>(max_at_once_), tag);
  runner->Supply(std::move(plan));
}

Schedule ShardExchange::MakeSchedule(Kind kind, int detail) const {
  const int nodes = partition_.node_count(), me = partition_.node;
  const auto algorithm = static_cast<Algorithm>(detail);
  switch (kind) {
    case Kind::kBroadcast:
      return TreeBroadcast(nodes, me, detail);
    case Kind::kAllgather:
      return algorithm == Algorithm::kRing ? RingAllgather(nodes, me) : DirectAllgather(nodes, me);
    case Kind::kReduceScatter:
      return PairwiseReduceScatter(nodes, me);
    case Kind::kAlltoall:
      return PairwiseAlltoall(set_->size(), set_->position);
    case Kind::kAllreduce:
      break;
  }
  if (algorithm == Algorithm::kRing) return RingAllreduce(nodes, me);
  if (algorithm == Algorithm::kTree) return TreeAllreduce(nodes, me);
  return algorithm == Algorithm::kExchange ? ExchangeAll(nodes, me) : DirectAllreduce(nodes, me);
}

// Returns the owners of the shard, by node.
std::vector<int> ShardExchange::OwnersOf(int shard, int shard_count) const {
  const Layout& layout = *partition_.layout;
  std::vector<int> ranks;
  for (int g = 0; g < layout.node_count(); ++g) {
    const auto size = static_cast<int>(layout.nodes[static_cast<size_t>(g)].size());
    ranks.push_back(set_->ranks[static_cast<size_t>(layout.RankOf(g, OwnerOfShard(size, shard, shard_count)))]);
  }
  return ranks;
}

// ---- what runs

Status ShardExchange::Advance(bool* moved) {
  if (running_.empty()) return Status::Ok();
  for (Prepared* each : running_) FRD_RETURN_IF_ERROR(each->runner->Post(moved));
  *moved |= Runner::PollAll(world_->transport.get(), &completions_);
  bool done = true;
  for (Prepared* each : running_) {
    each->runner->ReduceReady(moved);
    done &= each->runner->done();
  }
  if (!done) return Status::Ok();
  FRD_FAILPOINT("native.exchange");
  running_.clear();
  return Status::Ok();
}

std::vector<int> ShardExchange::WaitingOn() const {
  std::vector<int> ranks;
  for (const Prepared* each : running_) {
    for (size_t p = 0; p < each->ranks.size(); ++p) {
      if (each->runner->WaitsToRecv(static_cast<int>(p))) ranks.push_back(each->ranks[p]);
    }
  }
  return ranks;
}

}  // namespace farandole
