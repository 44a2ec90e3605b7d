#include "collectives/shard_exchange.h"

#include <algorithm>

#include "algorithms/schedule.h"
#include "common/failpoint.h"

namespace farandole {

ShardExchange::ShardExchange(World* world, const ProcessSet* set)
    : world_(world),
      set_(set),
      partition_{&set->layout, set->layout.group_of[static_cast<size_t>(set->position)],
                 set->layout.member_of[static_cast<size_t>(set->position)]},
      shares_links_(SharesLinks()) {}

// Owners ascend with the shards, so it is enough to look at neighbours: they share a link if the same two groups give
// both to one owner.
bool ShardExchange::SharesLinks() const {
  const int shard_count = set_->layout.shard_count();
  for (int shard = 1; shard < shard_count; ++shard) {
    int groups = 0;
    for (const auto& group : set_->layout.groups) {
      const auto size = static_cast<int>(group.size());
      groups += OwnerOfShard(size, shard - 1, shard_count) == OwnerOfShard(size, shard, shard_count) ? 1 : 0;
    }
    if (groups > 1) return true;
  }
  return false;
}

void ShardExchange::Allreduce(const Task& task, Scale scale, std::byte* data, int64_t element_count, int shard_count,
                              const std::byte* source) {
  const size_t width = SizeOf(task.dtype);
  const ShardRange shards = Shards(shard_count);
  const int64_t first = partition_.OwnedBy(partition_.member, shard_count, element_count, width).begin;
  for (int shard = shards.begin; shard < shards.end; ++shard) {
    const Range elements = BlockRange(element_count, width, shard, shard_count);
    if (LeavesOut(elements.size())) continue;
    const size_t at = static_cast<size_t>(elements.begin - first) * width;
    RunPlan plan;
    plan.data = data + at;
    if (source != nullptr) plan.source = source + at;
    plan.element_count = elements.size();
    plan.dtype = task.dtype;
    plan.reduce = task.reduce;
    plan.scale = scale;
    Add({Kind::kAllreduce, static_cast<int>(algorithm_), shard, shard_count}, std::move(plan));
  }
}

void ShardExchange::Broadcast(std::byte* data, int64_t size_bytes, int shard_count, int root_group) {
  const ShardRange shards = Shards(shard_count);
  const int64_t first = partition_.OwnedBy(partition_.member, shard_count, size_bytes, 1).begin;
  for (int shard = shards.begin; shard < shards.end; ++shard) {
    const Range bytes = BlockRange(size_bytes, 1, shard, shard_count);
    if (LeavesOut(bytes.size())) continue;
    RunPlan plan;
    plan.data = data + (bytes.begin - first);
    plan.element_count = bytes.size();
    Add({Kind::kBroadcast, root_group, shard, shard_count}, std::move(plan));
  }
}

void ShardExchange::Begin(Algorithm algorithm, const MessageTag& tag) {
  algorithm_ = algorithm;
  tag_ = tag;
}

void ShardExchange::Allgather(int shard, int shard_count, std::vector<BlockMemory> blocks) {
  RunPlan plan;
  plan.blocks = std::move(blocks);
  Add({Kind::kAllgather, static_cast<int>(algorithm_), shard, shard_count}, std::move(plan));
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

void ShardExchange::BeginRounds(uint64_t rounds, uint64_t most_at_once) {
  rounds_ = rounds;
  most_at_once_ = most_at_once;
  rounds_added_ = 0;
  in_streams_ = adds_to_streams_ = !shares_links_ && FitsRounds(most_at_once);
}

// Every schedule that is used in streams must reach its last phase while no more rounds than these are added.
bool ShardExchange::FitsRounds(uint64_t most_at_once) const {
  const int groups = partition_.group_count();
  int levels = 0;
  while (1 << levels < groups) ++levels;
  const int direct = 2, broadcast = levels, tree = 2 * levels, ring = 2 * (groups - 1), ring_allgather = groups - 1;
  std::vector<int> phase_counts = {direct, broadcast};
  if (algorithm_ == Algorithm::kTree) phase_counts.push_back(tree);
  if (algorithm_ == Algorithm::kRing) phase_counts.insert(phase_counts.end(), {ring, ring_allgather});
  return std::all_of(phase_counts.begin(), phase_counts.end(), [&](int phase_count) {
    return ChunksBeforeLastPhase(std::max(phase_count, 1), kRoundsUnderWay) < static_cast<int64_t>(most_at_once);
  });
}

void ShardExchange::EndRound() {
  ++rounds_added_;
  next_stream_ = 0;
  adds_to_streams_ = in_streams_ && rounds_added_ < rounds_;
  if (!in_streams_ && jobs_ended_ < jobs_added_) round_ends_.push_back(jobs_added_);
}

uint64_t ShardExchange::rounds_done() const {
  if (!in_streams_) return rounds_added_ - round_ends_.size();
  uint64_t done = rounds_added_;
  for (const Prepared* stream : streams_) done = std::min(done, static_cast<uint64_t>(stream->runner->rounds_done()));
  return done;
}

Status ShardExchange::Advance(bool* moved) {
  FRD_RETURN_IF_ERROR(AdvanceJobs(moved));
  return AdvanceStreams(moved);
}

Status ShardExchange::AdvanceJobs(bool* moved) {
  while (!jobs_.empty()) {
    Runner* const runner = jobs_.front().prepared->runner.get();
    FRD_RETURN_IF_ERROR(runner->Advance(moved));
    if (!runner->done()) return Status::Ok();
    FRD_FAILPOINT("native.exchange");
    jobs_.pop_front();
    ++jobs_ended_;
    while (!round_ends_.empty() && round_ends_.front() <= jobs_ended_) round_ends_.pop_front();
    if (!jobs_.empty()) StartFirst();
  }
  return Status::Ok();
}

Status ShardExchange::AdvanceStreams(bool* moved) {
  if (streams_.empty()) return Status::Ok();
  bool running = false;
  for (Prepared* stream : streams_) FRD_RETURN_IF_ERROR(stream->runner->Post(moved));
  FRD_RETURN_IF_ERROR(streams_.front()->runner->Poll(moved));
  for (Prepared* stream : streams_) {
    stream->runner->ReduceReady(moved);
    running |= !stream->runner->done();
  }
  if (!running) {
    FRD_FAILPOINT("native.exchange");
    streams_.clear();
  }
  return Status::Ok();
}

void ShardExchange::Abort() {
  jobs_.clear();
  jobs_ended_ = jobs_added_;
  streams_.clear();
  round_ends_.clear();
  adds_to_streams_ = false;
}

void ShardExchange::StartFirst() {
  const Prepared& prepared = *jobs_.front().prepared;
  prepared.runner->Start(jobs_.front().plan, TagOf(prepared));
}

void ShardExchange::Add(const RunnerKey& key, RunPlan plan) {
  if (adds_to_streams_) return AddToStream(key, std::move(plan));
  jobs_.push_back({Prepare(key), std::move(plan)});
  ++jobs_added_;
  if (jobs_.size() == 1) StartFirst();
}

// The first round starts the runners; later rounds supply their plans.
void ShardExchange::AddToStream(RunnerKey key, RunPlan plan) {
  if (rounds_added_ == 0) {
    key.in_rounds = true;
    streams_.push_back(Prepare(key));
    streams_.back()->runner->StartRounds(static_cast<int64_t>(rounds_), static_cast<int64_t>(most_at_once_),
                                         TagOf(*streams_.back()));
  }
  streams_[next_stream_++]->runner->Supply(std::move(plan));
}

ShardExchange::Prepared* ShardExchange::Prepare(const RunnerKey& key) {
  Prepared& prepared = prepared_[key];
  if (!prepared.runner) {
    prepared.schedule = MakeSchedule(key.kind, key.detail);
    prepared.ranks = key.kind == Kind::kAlltoall ? set_->ranks : OwnersOf(key.shard, key.shard_count);
    prepared.channel = static_cast<uint32_t>(set_->channel << 16 | key.shard);
    prepared.runner = std::make_unique<Runner>(&prepared.schedule, world_->transport.get(), prepared.ranks,
                                               key.in_rounds ? kRoundsUnderWay : kChunksUnderWay);
  }
  return &prepared;
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

std::vector<int> ShardExchange::WaitingOn() const {
  std::vector<int> ranks;
  if (!jobs_.empty()) AddWaits(*jobs_.front().prepared, &ranks);
  for (const Prepared* stream : streams_) AddWaits(*stream, &ranks);
  return ranks;
}

void ShardExchange::AddWaits(const Prepared& running, std::vector<int>* ranks) {
  for (size_t p = 0; p < running.ranks.size(); ++p) {
    if (running.runner->WaitsToRecv(static_cast<int>(p))) ranks->push_back(running.ranks[p]);
  }
}

}  // namespace farandole
