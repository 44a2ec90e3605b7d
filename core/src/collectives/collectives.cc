#include "collectives/collectives.h"

#include "common/failpoint.h"

namespace farandole {
namespace {

// Returns the set's members that share this rank's segment, as members of the segment.
std::vector<int> SegmentMembers(const World& world, const ProcessSet& set) {
  std::vector<int> members;
  const int group = set.layout.group_of[static_cast<size_t>(set.position)];
  for (int position : set.layout.groups[static_cast<size_t>(group)]) {
    const int rank = set.ranks[static_cast<size_t>(position)];
    members.push_back(world.layout.member_of[static_cast<size_t>(rank)]);
  }
  return members;
}

// The operation of the task's kind; null: nothing to move.
std::unique_ptr<LinkOperation> MakeOnLinks(const LinkStart& start) {
  switch (start.task->kind) {
#define FRD_OP_KIND(enumerator, number, name, traits, moved, ...) \
  case OpKind::enumerator:                                        \
    return Make##moved##OnLinks(start);
#include "common/types.def"
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<LinkOperation> MakeNothingOnLinks(const LinkStart&) { return nullptr; }

Collectives::Collectives(World* world, const Settings& settings, const ProcessSet& set, int old_set_id)
    : world_(world),
      settings_(settings),
      set_(set),
      staging_(&*world->group, set.channel, set.id, SegmentMembers(*world, set),
               set.layout.member_of[static_cast<size_t>(set.position)],
               set.layout.group_count() > 1 ? kCrossingDepth : 3),
      exchange_(world, &set_),
      old_set_id_(old_set_id),
      next_round_(FirstRound(set.id)) {}

// Ranks of one node meet in shared memory, and need no tag.
void Collectives::Begin(const Task& task) {
  plan_ = PlanOf(task, settings_, world_->rank);
  if (set_.local()) return;
  MessageTag tag;
  tag.id = set_.id;
  tag.operation = task.number;
  tag.plan = plan_.code();
  exchange_.Begin(plan_.algorithm, tag);
  if (task.number > 0) world_->transport->Begin(tag);
}

Status Collectives::Start(const Task* task) {
  task_ = task;
  launched_ = false;
  staged_.reset();
  apart_.reset();
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
    scratch_.Release();
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
  exchange_.Abort();
  task_ = nullptr;
}

Status Collectives::LaunchWhenFree() {
  if (!entered_) {
    if (old_set_id_ >= 0 && !staging_.HasBeenLeft(old_set_id_)) return Status::Ok();
    staging_.Enter();
    entered_ = true;
  }
  launched_ = true;
  if (plan_.path == PathKind::kLinks) {
    apart_ = MakeOnLinks({task_, &exchange_, &scratch_});
    return apart_ ? apart_->Start() : Status::Ok();
  }
  staged_ = MakeStaged({&staging_, next_round_, task_, &exchange_});
  return Status::Ok();
}

}  // namespace farandole
