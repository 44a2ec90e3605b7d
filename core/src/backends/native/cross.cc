#include "backends/native/cross.h"

#include "algorithms/direct.h"
#include "algorithms/ring.h"
#include "algorithms/tree.h"

namespace farandole {
namespace {

Algorithm Parse(const std::string& name) {
  if (name == "direct") return Algorithm::kDirect;
  if (name == "ring") return Algorithm::kRing;
  if (name == "tree") return Algorithm::kTree;
  if (name == "exchange") return Algorithm::kExchange;
  return Algorithm::kAuto;
}

// Whether the bits of the result depend on the order in which values are folded.
bool OrderMatters(const Work& work) {
  return IsFloating(work.dtype) && (work.reduce == ReduceOp::kSum || work.reduce == ReduceOp::kProduct);
}

}  // namespace

CrossExchange::CrossExchange(World* world, const Settings& settings)
    : world_(world),
      topology_{&world->layout, world->my_group(), world->group->member()},
      forced_(Parse(settings.algorithm)),
      any_order_(settings.any_order) {}

void CrossExchange::Allreduce(const Work& work, Scale scale, std::byte* data, int64_t element_count, int lane_count) {
  const size_t width = SizeOf(work.dtype);
  const bool order_matters = OrderMatters(work) && !any_order_;
  const LaneRange lanes = Lanes(lane_count);
  for (int lane = lanes.begin; lane < lanes.end; ++lane) {
    const Range elements = BlockRange(element_count, width, lane, lane_count);
    if (elements.size() == 0) continue;
    RunPlan plan;
    plan.data = data + static_cast<size_t>(elements.begin) * width;
    plan.element_count = elements.size();
    plan.dtype = work.dtype;
    plan.reduce = work.reduce;
    plan.scale = scale;
    const size_t size_bytes = static_cast<size_t>(elements.size()) * width;
    const Algorithm algorithm = ChooseAllreduce(size_bytes, topology_.group_count(), order_matters, forced_);
    Add(Kind::kAllreduce, static_cast<int>(algorithm), lane, lane_count, std::move(plan));
  }
}

void CrossExchange::Broadcast(std::byte* data, int64_t size_bytes, int lane_count, int root_group) {
  const LaneRange lanes = Lanes(lane_count);
  for (int lane = lanes.begin; lane < lanes.end; ++lane) {
    const Range bytes = BlockRange(size_bytes, 1, lane, lane_count);
    if (bytes.size() == 0) continue;
    RunPlan plan;
    plan.data = data + bytes.begin;
    plan.element_count = bytes.size();
    Add(Kind::kBroadcast, root_group, lane, lane_count, std::move(plan));
  }
}

void CrossExchange::Allgather(std::byte* data, const std::vector<Range>& parts) {
  RunPlan plan;
  plan.data = data;
  plan.blocks = parts;
  Add(Kind::kAllgather, 0, 0, 1, std::move(plan));
}

Status CrossExchange::Advance(bool* moved) {
  while (!jobs_.empty()) {
    FRD_RETURN_IF_ERROR(jobs_.front().runner->Advance(moved));
    if (!jobs_.front().runner->done()) return Status::Ok();
    jobs_.pop_front();
    if (!jobs_.empty()) jobs_.front().runner->Start(jobs_.front().plan);
  }
  return Status::Ok();
}

void CrossExchange::Add(Kind kind, int detail, int lane, int lane_count, RunPlan plan) {
  Prepared& prepared = prepared_[{kind, detail, lane, lane_count}];
  if (!prepared.runner) {
    prepared.schedule = MakeSchedule(kind, detail);
    prepared.runner = std::make_unique<Runner>(&prepared.schedule, LinksOf(lane, lane_count));
  }
  jobs_.push_back({prepared.runner.get(), lane, lane_count, std::move(plan)});
  if (jobs_.size() == 1) jobs_.front().runner->Start(jobs_.front().plan);
}

Schedule CrossExchange::MakeSchedule(Kind kind, int detail) const {
  const int groups = topology_.group_count(), me = topology_.group;
  if (kind == Kind::kBroadcast) return TreeBroadcast(groups, me, detail);
  if (kind == Kind::kAllgather) return DirectAllgather(groups, me);
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

int CrossExchange::CarrierRank(int group, int lane, int lane_count) const {
  const auto size = static_cast<int>(topology_.layout->groups[static_cast<size_t>(group)].size());
  return topology_.layout->RankOf(group, LaneCarrier(size, lane, lane_count));
}

// Indexed by group: the link to the lane's carrier there.
std::vector<Link*> CrossExchange::LinksOf(int lane, int lane_count) const {
  std::vector<Link*> links;
  for (int g = 0; g < topology_.group_count(); ++g) {
    const auto rank = static_cast<size_t>(CarrierRank(g, lane, lane_count));
    links.push_back(g == topology_.group ? nullptr : world_->links[rank].get());
  }
  return links;
}

std::vector<int> CrossExchange::Laggards() const {
  std::vector<int> ranks;
  if (jobs_.empty()) return ranks;
  const Job& job = jobs_.front();
  for (int g = 0; g < topology_.group_count(); ++g) {
    const bool waits = g != topology_.group && job.runner->WaitsToRecv(g);
    if (waits) ranks.push_back(CarrierRank(g, job.lane, job.lane_count));
  }
  return ranks;
}

}  // namespace farandole
