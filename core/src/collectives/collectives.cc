#include "collectives/collectives.h"

#include "algorithms/partition.h"
#include "collectives/task.h"
#include "common/failpoint.h"

namespace farandole {
namespace {

// The set's members that share this rank's segment, as members of the segment.
std::vector<int> SegmentMembers(const World& world, const ProcessSet& set) {
  std::vector<int> members;
  const int group = set.layout.group_of[static_cast<size_t>(set.position)];
  for (int position : set.layout.groups[static_cast<size_t>(group)]) {
    const int rank = set.ranks[static_cast<size_t>(position)];
    members.push_back(world.layout.member_of[static_cast<size_t>(rank)]);
  }
  return members;
}

PathKind PathOf(const Task& task) {
  PathFacts facts = FactsOf(task.kind, task.reduce, task.set->layout);
  facts.in_log = true;
  return ChoosePath(facts);
}

const std::byte* At(const void* memory, size_t offset) {
  return memory ? static_cast<const std::byte*>(memory) + offset : nullptr;
}
std::byte* At(void* memory, size_t offset) { return memory ? static_cast<std::byte*>(memory) + offset : nullptr; }

}  // namespace

Collectives::Collectives(World* world, const Settings& settings, const ProcessSet& set, int old_set_id)
    : set_(set),
      staging_(&*world->group, set.channel, set.id, SegmentMembers(*world, set),
               set.layout.member_of[static_cast<size_t>(set.position)]),
      exchange_(world, &set_, settings),
      old_set_id_(old_set_id),
      next_round_(FirstRound(set.id)) {}

Status Collectives::Start(const Task* task) {
  task_ = task;
  launched_ = false;
  return LaunchWhenFree();
}

Status Collectives::Poll(bool* moved, bool* done) {
  if (!launched_) FRD_RETURN_IF_ERROR(LaunchWhenFree());
  if (!launched_) return Status::Ok();
  if (staged_) {
    FRD_RETURN_IF_ERROR(staged_->Advance(moved));
    if (staged_->done()) {
      next_round_ += staged_->rounds();
      staged_.reset();
    }
  }
  FRD_RETURN_IF_ERROR(exchange_.Advance(moved));
  if (staged_ || !exchange_.done()) return Status::Ok();
  if (apart_) {
    FRD_FAILPOINT("native.finish");
    apart_->Finish();
    apart_.reset();
  }
  task_ = nullptr;
  *moved = *done = true;
  return Status::Ok();
}

std::vector<int> Collectives::WaitingOn() const {
  std::vector<int> ranks = exchange_.WaitingOn();
  for (int member : staging_.WaitingOn()) {
    ranks.push_back(set_.ranks[static_cast<size_t>(exchange_.partition().ranks()[static_cast<size_t>(member)])]);
  }
  return ranks;
}

void Collectives::Abort() {
  staged_.reset();
  exchange_.Abort();
  apart_.reset();
  task_ = nullptr;
}

Status Collectives::LaunchWhenFree() {
  if (!entered_) {
    if (old_set_id_ >= 0 && !staging_.HasBeenLeft(old_set_id_)) return Status::Ok();
    staging_.Enter();
    entered_ = true;
  }
  launched_ = true;
  if (TakesSplits(task_->kind)) {
    LaunchAlltoall();
  } else if (PathOf(*task_) == PathKind::kLinks) {
    apart_ = std::make_unique<LinkOperation>(task_, &exchange_, &scratch_);
    return apart_->Start();
  } else {
    LaunchStaged();
  }
  return Status::Ok();
}

void Collectives::LaunchStaged() {
  const StagedStart start{&staging_, next_round_, task_, &exchange_};
  switch (task_->kind) {
    case OpKind::kAllreduce:
      staged_ = MakeStagedAllreduce(start);
      return;
    case OpKind::kBroadcast:
      staged_ = MakeStagedBroadcast(start);
      return;
    case OpKind::kAllgather:
      staged_ = MakeStagedAllgather(start);
      return;
    case OpKind::kReducescatter:
      staged_ = MakeStagedReducescatter(start);
      return;
    default:  // nothing to move
      return;
  }
}

// One stage: through staging between members of a group, over the links between all others, both at once.
void Collectives::LaunchAlltoall() {
  const Segment& segment = task_->segments[0];
  const std::vector<size_t> send_at = PartOffsets(task_->send_bytes), recv_at = PartOffsets(task_->recv_bytes);
  const auto me = static_cast<size_t>(set_.position);
  if (segment.output != nullptr) {
    ReadInput(segment, send_at[me], task_->send_bytes[me], At(segment.output, recv_at[me]));
  }
  if (staging_.count() > 1) {
    staged_ = MakeStagedAlltoall({&staging_, next_round_, task_, &exchange_});
  }
  if (set_.local()) return;
  std::vector<BlockMemory> sent, blocks;
  for (size_t p = 0; p < send_at.size(); ++p) {
    const bool elsewhere = set_.layout.group_of[p] != exchange_.partition().group;
    sent.push_back({At(segment.input, send_at[p]), nullptr, elsewhere ? task_->send_bytes[p] : 0});
    blocks.push_back({nullptr, At(segment.output, recv_at[p]), elsewhere ? task_->recv_bytes[p] : 0});
  }
  blocks.insert(blocks.begin(), sent.begin(), sent.end());
  exchange_.Alltoall(std::move(blocks));
}

}  // namespace farandole
