// The native backend: runs a task by its plan (algorithms/plan.h), and polls it.
//
//   one node                      through staging
//   no two ranks share memory     over links, on the tensors themselves
//   several nodes                 through staging inside, over links between
//
// Adasum is several collectives of one plan.
#include <limits>
#include <map>

#include "algorithms/partition.h"
#include "backends/table.h"
#include "collectives/adasum.h"
#include "collectives/shard_exchange.h"
#include "collectives/staging.h"
#include "common/failpoint.h"

namespace farandole {
namespace {

// Returns the set's members that share this rank's segment, as members of the segment.
std::vector<int> SegmentMembers(const World& world, const ProcessSet& set) {
  std::vector<int> members;
  for (int position : set.layout.nodes[static_cast<size_t>(set.node())]) {
    const int rank = set.ranks[static_cast<size_t>(position)];
    members.push_back(world.layout.member_of[static_cast<size_t>(rank)]);
  }
  return members;
}

// What is kept for a process set.
struct SetState {
  // before: this rank's former set on the same channel, or -1.
  SetState(World* world, const ProcessSet& of, int before)
      : set(of),
        staging(&*world->node, set.channel, set.id, SegmentMembers(*world, set), set.member(),
                set.layout.node_count() > 1 ? kInterNodeDepth : 3),
        exchange(world, &set),
        old_set_id(before),
        next_round(FirstRound(set.id)) {}

  const ProcessSet set;
  Staging staging;
  ShardExchange exchange;
  const int old_set_id;
  bool has_entered = false;
  uint64_t next_round;
};

class Native final : public Backend {
 public:
  Native(World* world, const Settings& settings) : world_(world), settings_(settings) {}

  // Ranks of one node meet in shared memory, and need no tag.
  Status Start(const Task* task) override {
    running_ = &StateOf(*task->set);
    plan_ = PlanOf(*task, settings_);
    if (!task->set->local()) {
      MessageTag tag;
      tag.id = task->set->id;
      tag.operation = task->number;
      tag.plan = plan_.code();
      running_->exchange.Begin(plan_.algorithm, tag);
      if (task->number > 0) world_->transport->Begin(tag);
    }
    step_ = task;
    is_launched_ = false;
    staged_.reset();
    adasum_.reset();
    if (!Reduces(task->kind) || !NeedsWholeTensors(task->reduce)) return Launch();
    adasum_ = std::make_unique<Adasum>(task);
    step_ = nullptr;
    return Status::Ok();
  }

  Status Poll(bool* moved, bool* done) override {
    if (step_ == nullptr) return PollAdasum(moved, done);
    if (!is_launched_) FRD_RETURN_IF_ERROR(Launch());
    if (!is_launched_) return Status::Ok();
    if (staged_) {
      FRD_RETURN_IF_ERROR(staged_->Advance(moved));
      if (!staged_->done()) return Status::Ok();
      running_->next_round += staged_->rounds();
      staged_.reset();
    }
    FRD_RETURN_IF_ERROR(running_->exchange.Advance(moved));
    if (!running_->exchange.done()) return Status::Ok();
    if (plan_.path == PathKind::kFlat) {
      FRD_FAILPOINT("native.finish");
      const IoVector outputs(&step_->buffers);
      if (result_ != nullptr) outputs.WriteOutput(0, outputs.size_bytes(), result_);
      scratch_.Release();
    }
    step_ = nullptr;
    *moved = true;
    *done = adasum_ == nullptr;
    return Status::Ok();
  }

  std::vector<int> WaitingOn() const override {
    if (running_ == nullptr) return {};
    std::vector<int> ranks = running_->exchange.WaitingOn();
    const std::vector<int>& positions = running_->exchange.partition().ranks();
    for (int member : running_->staging.WaitingOn())
      ranks.push_back(running_->set.ranks[static_cast<size_t>(positions[static_cast<size_t>(member)])]);
    return ranks;
  }

  // The operation's own memory stays, since posts may touch it until the transport is quiet.
  void Abort() override {
    if (running_ != nullptr) running_->exchange.Abort();
  }

  void Forget(int set_id) override {
    const auto found = sets_.find(set_id);
    if (found == sets_.end()) return;
    if (running_ == &found->second) running_ = nullptr;
    found->second.staging.Leave();
    sets_.erase(found);
  }

 private:
  SetState& StateOf(const ProcessSet& set) {
    const auto found = sets_.find(set.id);
    if (found != sets_.end()) return found->second;
    const auto last = last_set_on_channel_.emplace(set.channel, -1).first;
    const int before = std::exchange(last->second, set.id);
    return sets_.try_emplace(set.id, world_, set, before).first->second;
  }

  // Begins the collective at hand, once the members have left the former set on this channel.
  Status Launch() {
    if (!running_->has_entered) {
      if (running_->old_set_id >= 0 && !running_->staging.HasBeenLeft(running_->old_set_id)) return Status::Ok();
      running_->staging.Enter();
      running_->has_entered = true;
    }
    is_launched_ = true;
    result_ = nullptr;
    return StartOperation({step_, plan_.path == PathKind::kFlat, &running_->staging, running_->next_round,
                           &running_->exchange, &scratch_, &result_},
                          &staged_);
  }

  Status PollAdasum(bool* moved, bool* done) {
    *moved = true;
    FRD_RETURN_IF_ERROR(adasum_->Advance(&step_, done));
    if (*done) adasum_.reset();
    is_launched_ = false;
    return Status::Ok();
  }

  World* world_;
  const Settings settings_;
  std::map<int, SetState> sets_;            // by the set's id; made with the set's first task
  std::map<int, int> last_set_on_channel_;  // by channel; only sets that this rank was in
  SetState* running_ = nullptr;             // of the current task, or of the last

  // The current task.
  Plan plan_;
  std::unique_ptr<Adasum> adasum_;  // null for other tasks
  const Task* step_ = nullptr;      // the task, or the part of Adasum that moves data; null: Adasum computes
  bool is_launched_ = false;
  std::unique_ptr<StagedOperation> staged_;
  Scratch scratch_;
  std::byte* result_ = nullptr;  // flat: see OperationStart
};

// Tensors may lie anywhere: the engine copies those on a device to host memory first.
bool NativeSupports(const OperationFacts& facts) {
  if (facts.set_size > NativeMaxRanks(facts.kind)) return false;
  if (!Reduces(facts.kind)) return true;
  return Supports(facts.dtype, facts.reduce) && (Fuses(facts.kind) || !NeedsWholeTensors(facts.reduce));
}

Status FindNoLibrary(const Settings&, std::string*) { return Status::Ok(); }

std::unique_ptr<Backend> MakeNative(World* world, const Settings& settings, Backend*) {
  return std::make_unique<Native>(world, settings);
}

}  // namespace

// Allgather and reducescatter give every position a piece of each slot (Parts), and a slot has room for only so many.
int NativeMaxRanks(OpKind kind) {
  const bool in_parts = AllocatesOutput(kind) && !TakesSplits(kind);
  return in_parts ? Parts::kMaxPositions : std::numeric_limits<int>::max();
}

size_t NativeStagingBytesPerMember() { return Staging::BytesPerMember(); }

const BackendKind kNative{"native", NativeSupports, false, FindNoLibrary, MakeNative};

}  // namespace farandole
