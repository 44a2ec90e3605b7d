#include "collectives/shard_exchange.h"

#include <algorithm>

#include "algorithms/schedule.h"
#include "common/failpoint.h"

namespace farandole {
namespace {

Algorithm Parse(const std::string& name) {
  if (name == "direct") return Algorithm::kDirect;
  if (name == "ring") return Algorithm::kRing;
  if (name == "tree") return Algorithm::kTree;
  if (name == "exchange") return Algorithm::kExchange;
  return Algorithm::kAuto;
}

}  // namespace

ShardExchange::ShardExchange(World* world, const ProcessSet* set, const Settings& settings)
    : world_(world),
      set_(set),
      partition_{&set->layout, set->layout.group_of[static_cast<size_t>(set->position)],
                 set->layout.member_of[static_cast<size_t>(set->position)]},
      forced_(Parse(settings.algorithm)),
      any_order_(settings.any_order) {}

void ShardExchange::Allreduce(const Task& task, Scale scale, std::byte* data, int64_t element_count, int shard_count,
                              const std::byte* source) {
  const size_t width = SizeOf(task.dtype);
  const bool order_matters = OrderMatters(task.dtype, task.reduce) && !any_order_;
  const ShardRange shards = Shards(shard_count);
  const int64_t first = partition_.OwnedBy(partition_.member, shard_count, element_count, width).begin;
  for (int shard = shards.begin; shard < shards.end; ++shard) {
    const Range elements = BlockRange(element_count, width, shard, shard_count);
    if (elements.size() == 0) continue;
    const size_t at = static_cast<size_t>(elements.begin - first) * width;
    RunPlan plan;
    plan.data = data + at;
    if (source != nullptr) plan.source = source + at;
    plan.element_count = elements.size();
    plan.dtype = task.dtype;
    plan.reduce = task.reduce;
    plan.scale = scale;
    const size_t size_bytes = static_cast<size_t>(elements.size()) * width;
    const Algorithm algorithm = ChooseAllreduce(size_bytes, partition_.group_count(), order_matters, forced_);
    Add({Kind::kAllreduce, static_cast<int>(algorithm), shard, shard_count}, std::move(plan));
  }
}

void ShardExchange::Broadcast(std::byte* data, int64_t size_bytes, int shard_count, int root_group) {
  const ShardRange shards = Shards(shard_count);
  const int64_t first = partition_.OwnedBy(partition_.member, shard_count, size_bytes, 1).begin;
  for (int shard = shards.begin; shard < shards.end; ++shard) {
    const Range bytes = BlockRange(size_bytes, 1, shard, shard_count);
    if (bytes.size() == 0) continue;
    RunPlan plan;
    plan.data = data + (bytes.begin - first);
    plan.element_count = bytes.size();
    Add({Kind::kBroadcast, root_group, shard, shard_count}, std::move(plan));
  }
}

Algorithm ShardExchange::AllgatherOf(size_t largest_block_bytes) const {
  return ChooseAllgather(largest_block_bytes, partition_.group_count(), forced_);
}

void ShardExchange::Allgather(int shard, int shard_count, std::vector<BlockMemory> blocks) {
  size_t largest = 0;
  for (const BlockMemory& block : blocks) largest = std::max(largest, block.size_bytes);
  RunPlan plan;
  plan.blocks = std::move(blocks);
  Add({Kind::kAllgather, static_cast<int>(AllgatherOf(largest)), shard, shard_count}, std::move(plan));
}

void ShardExchange::ReduceScatter(const Task& task, Scale scale, int shard, int shard_count,
                                  std::vector<BlockMemory> blocks) {
  RunPlan plan;
  plan.dtype = task.dtype;
  plan.reduce = task.reduce;
  plan.scale = scale;
  plan.blocks = std::move(blocks);
  Add({Kind::kReduceScatter, 0, shard, shard_count}, std::move(plan));
}

void ShardExchange::Alltoall(std::vector<BlockMemory> blocks) {
  RunPlan plan;
  plan.blocks = std::move(blocks);
  Add({Kind::kAlltoall, 0, 0, 0}, std::move(plan));
}

Status ShardExchange::Advance(bool* moved) {
  while (!jobs_.empty()) {
    Runner* const runner = jobs_.front().prepared->runner.get();
    FRD_RETURN_IF_ERROR(runner->Advance(moved));
    if (!runner->done()) return Status::Ok();
    FRD_FAILPOINT("native.exchange");
    jobs_.pop_front();
    if (!jobs_.empty()) StartFirst();
  }
  return Status::Ok();
}

void ShardExchange::StartFirst() { jobs_.front().prepared->runner->Start(jobs_.front().plan); }

void ShardExchange::Add(const RunnerKey& key, RunPlan plan) {
  Prepared& prepared = prepared_[key];
  if (!prepared.runner) {
    const auto [kind, detail, shard, shard_count] = key;
    prepared.schedule = MakeSchedule(kind, detail);
    prepared.ranks = kind == Kind::kAlltoall ? set_->ranks : OwnersOf(shard, shard_count);
    prepared.runner = std::make_unique<Runner>(&prepared.schedule, LinksTo(prepared.ranks));
  }
  jobs_.push_back({&prepared, std::move(plan)});
  ++jobs_added_;
  if (jobs_.size() == 1) StartFirst();
}

Schedule ShardExchange::MakeSchedule(Kind kind, int detail) const {
  const int groups = partition_.group_count(), me = partition_.group;
  if (kind == Kind::kBroadcast) return TreeBroadcast(groups, me, detail);
  if (kind == Kind::kAllgather) {
    return static_cast<Algorithm>(detail) == Algorithm::kRing ? RingAllgather(groups, me) : DirectAllgather(groups, me);
  }
  if (kind == Kind::kReduceScatter) return PairwiseReduceScatter(groups, me);
  if (kind == Kind::kAlltoall) return PairwiseAlltoall(set_->size(), set_->position);
  switch (static_cast<Algorithm>(detail)) {
    case Algorithm::kRing:
      return RingAllreduce(groups, me);
    case Algorithm::kTree:
      return TreeAllreduce(groups, me);
    case Algorithm::kExchange:
      return ExchangeAll(groups, me);
    default:
      return DirectAllreduce(groups, me);
  }
}

// Returns the owners of the shard, by group.
std::vector<int> ShardExchange::OwnersOf(int shard, int shard_count) const {
  const Layout& layout = *partition_.layout;
  std::vector<int> ranks;
  for (int g = 0; g < layout.group_count(); ++g) {
    const auto size = static_cast<int>(layout.groups[static_cast<size_t>(g)].size());
    ranks.push_back(set_->ranks[static_cast<size_t>(layout.RankOf(g, OwnerOfShard(size, shard, shard_count)))]);
  }
  return ranks;
}

// Null for ranks of this group.
std::vector<Link*> ShardExchange::LinksTo(const std::vector<int>& ranks) const {
  std::vector<Link*> links;
  for (int rank : ranks) links.push_back(world_->links[static_cast<size_t>(rank)].get());
  return links;
}

std::vector<int> ShardExchange::WaitingOn() const {
  std::vector<int> ranks;
  if (jobs_.empty()) return ranks;
  const Prepared& running = *jobs_.front().prepared;
  for (size_t p = 0; p < running.ranks.size(); ++p) {
    if (running.runner->WaitsToRecv(static_cast<int>(p))) ranks.push_back(running.ranks[p]);
  }
  return ranks;
}

}  // namespace farandole
