#include "backends/native/collectives.h"

#include "backends/native/allgather.h"
#include "backends/native/allreduce.h"
#include "backends/native/alltoall.h"
#include "backends/native/broadcast.h"
#include "backends/native/concatenation.h"
#include "backends/native/grouped_allgather.h"
#include "backends/native/parts.h"
#include "backends/native/reducescatter.h"
#include "common/failpoint.h"

namespace farandole {
namespace {

// The set's members that share this rank's segment, as members of the segment.
std::vector<int> ArenaMembers(const World& world, const ProcessSet& set) {
  std::vector<int> members;
  const int group = set.layout.group_of[static_cast<size_t>(set.position)];
  for (int position : set.layout.groups[static_cast<size_t>(group)]) {
    const int rank = set.ranks[static_cast<size_t>(position)];
    members.push_back(world.layout.member_of[static_cast<size_t>(rank)]);
  }
  return members;
}

const std::byte* At(const void* memory, size_t offset) {
  return memory ? static_cast<const std::byte*>(memory) + offset : nullptr;
}
std::byte* At(void* memory, size_t offset) { return memory ? static_cast<std::byte*>(memory) + offset : nullptr; }

}  // namespace

Collectives::Collectives(World* world, const Settings& settings, const ProcessSet& set, int old_set_id)
    : set_(set),
      staging_(&*world->group, set.channel, set.id, ArenaMembers(*world, set),
               set.layout.member_of[static_cast<size_t>(set.position)]),
      cross_(world, &set_, settings),
      old_set_id_(old_set_id),
      next_round_(FirstRound(set.id)) {}

Status Collectives::Start(const Work* work) {
  work_ = work;
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
  FRD_RETURN_IF_ERROR(cross_.Advance(moved));
  if (staged_ || !cross_.done()) return Status::Ok();
  if (apart_) {
    FRD_FAILPOINT("native.finish");
    apart_->Finish();
    apart_.reset();
  }
  work_ = nullptr;
  *moved = *done = true;
  return Status::Ok();
}

std::vector<int> Collectives::Laggards() const {
  std::vector<int> ranks = cross_.Laggards();
  for (int member : staging_.Laggards()) {
    ranks.push_back(set_.ranks[static_cast<size_t>(cross_.topology().ranks()[static_cast<size_t>(member)])]);
  }
  return ranks;
}

void Collectives::Abort() {
  staged_.reset();
  cross_.Abort();
  apart_.reset();
  work_ = nullptr;
}

Status Collectives::LaunchWhenFree() {
  if (!entered_) {
    if (old_set_id_ >= 0 && !staging_.HasBeenLeft(old_set_id_)) return Status::Ok();
    staging_.Enter();
    entered_ = true;
  }
  launched_ = true;
  if (TakesSplits(work_->kind)) {
    LaunchAlltoall();
  } else if (all_apart()) {
    apart_ = std::make_unique<ApartOperation>(work_, &cross_, &room_);
    return apart_->Start();
  } else {
    LaunchStaged();
  }
  return Status::Ok();
}

void Collectives::LaunchStaged() {
  switch (work_->kind) {
    case OpKind::kAllreduce:
      staged_ = std::make_unique<StagedAllreduce>(&staging_, next_round_, work_, &cross_);
      return;
    case OpKind::kBroadcast:
      staged_ = std::make_unique<StagedBroadcast>(&staging_, next_round_, work_, &cross_);
      return;
    case OpKind::kAllgather:
      if (one_group()) {
        staged_ = std::make_unique<StagedAllgather>(&staging_, next_round_, work_);
      } else {
        const Parts parts(set_.layout, work_->rank_bytes, 1, kSlotBytes);
        staged_ = std::make_unique<GroupedAllgather>(&staging_, next_round_, work_, parts, &cross_);
      }
      return;
    case OpKind::kReducescatter: {
      const Parts parts(set_.layout, work_->rank_bytes, SizeOf(work_->dtype), kSlotBytes);
      staged_ = std::make_unique<StagedReducescatter>(&staging_, next_round_, work_, parts, &cross_);
      return;
    }
    default:  // nothing to move
      return;
  }
}

// One stage: through staging between members of a group, over the links between all others, both at once.
void Collectives::LaunchAlltoall() {
  const Segment& segment = work_->segments[0];
  const std::vector<size_t> send_at = PartOffsets(work_->send_bytes), recv_at = PartOffsets(work_->recv_bytes);
  const auto me = static_cast<size_t>(set_.position);
  if (segment.output != nullptr) {
    ReadInput(segment, send_at[me], work_->send_bytes[me], At(segment.output, recv_at[me]));
  }
  if (staging_.count() > 1) {
    staged_ = std::make_unique<StagedAlltoall>(&staging_, next_round_, work_, cross_.topology().ranks());
  }
  if (one_group()) return;
  std::vector<BlockMemory> sent, blocks;
  for (size_t p = 0; p < send_at.size(); ++p) {
    const bool elsewhere = set_.layout.group_of[p] != cross_.topology().group;
    sent.push_back({At(segment.input, send_at[p]), nullptr, elsewhere ? work_->send_bytes[p] : 0});
    blocks.push_back({nullptr, At(segment.output, recv_at[p]), elsewhere ? work_->recv_bytes[p] : 0});
  }
  blocks.insert(blocks.begin(), sent.begin(), sent.end());
  cross_.Alltoall(std::move(blocks));
}

}  // namespace farandole
