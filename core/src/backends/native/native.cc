#include "backends/native/native.h"

#include <cstring>

#include "backends/native/allgather.h"
#include "backends/native/allreduce.h"
#include "backends/native/broadcast.h"
#include "backends/native/cross.h"

namespace farandole {
namespace {

class Native final : public Backend {
 public:
  Native(World* world, const Settings& settings) : world_(world), staging_(&*world->group), cross_(world, settings) {}

  const char* name() const override { return "native"; }

  bool Supports(const Work& work) const override {
    return work.kind != OpKind::kAllreduce || farandole::Supports(work.dtype, work.reduce);
  }

  Status Start(const Work* work) override {
    work_ = work;
    next_root_ = 0;
    if (work->kind == OpKind::kAllreduce) {
      staged_ = std::make_unique<StagedAllreduce>(&staging_, next_round_, work, &cross_);
    } else if (work->kind == OpKind::kBroadcast) {
      staged_ = std::make_unique<StagedBroadcast>(&staging_, next_round_, &work->segments, work->root, &cross_);
    } else if (work->kind == OpKind::kAllgather) {
      StartAllgather();
    }
    return Status::Ok();
  }

  Status Poll(bool* moved, bool* done) override {
    if (staged_) {
      FRD_RETURN_IF_ERROR(staged_->Advance(moved));
      if (!staged_->done()) return Status::Ok();
      next_round_ += staged_->rounds();
      staged_.reset();
    }
    FRD_RETURN_IF_ERROR(cross_.Advance(moved));
    if (!cross_.done()) return Status::Ok();
    *done = !StartNextPart();
    *moved = true;
    return Status::Ok();
  }

  std::vector<int> Laggards() const override {
    std::vector<int> ranks = cross_.Laggards();
    for (int member : staging_.Laggards()) ranks.push_back(cross_.topology().ranks()[static_cast<size_t>(member)]);
    return ranks;
  }

  void Abort() override {
    staged_.reset();
    cross_.Abort();
    work_ = nullptr;
  }

  void Forget(int /*set_id*/) override {}

 private:
  bool AllAlone() const { return world_->layout.lane_count() == 1; }

  void StartAllgather() {
    if (world_->one_group()) {
      staged_ = std::make_unique<StagedAllgather>(&staging_, next_round_, work_);
    } else if (AllAlone()) {
      GatherOverLinks();
    } else {
      StartNextPart();
    }
  }

  // Every rank is a group of one: the schedule fills the output in place.
  void GatherOverLinks() {
    const std::vector<size_t> offsets = PartOffsets(work_->rank_bytes);
    auto* const output = static_cast<std::byte*>(work_->segments[0].output);
    const auto me = static_cast<size_t>(world_->rank);
    if (work_->rank_bytes[me] > 0) std::memcpy(output + offsets[me], work_->segments[0].input, work_->rank_bytes[me]);
    std::vector<Range> parts;
    for (size_t r = 0; r < offsets.size(); ++r) {
      parts.push_back({static_cast<int64_t>(offsets[r]), static_cast<int64_t>(offsets[r] + work_->rank_bytes[r])});
    }
    cross_.Allgather(output, parts);
  }

  // Several groups, some with several members: the parts are broadcast one after the other. False when there are none
  // left.
  bool StartNextPart() {
    if (work_->kind != OpKind::kAllgather || world_->one_group() || AllAlone() || next_root_ == world_->size)
      return false;
    const auto root = static_cast<size_t>(next_root_++);
    auto* const output = static_cast<std::byte*>(work_->segments[0].output);
    part_ = {{work_->segments[0].input, output + PartOffsets(work_->rank_bytes)[root], work_->rank_bytes[root]}};
    staged_ = std::make_unique<StagedBroadcast>(&staging_, next_round_, &part_, static_cast<int>(root), &cross_);
    return true;
  }

  World* world_;
  Staging staging_;
  CrossExchange cross_;
  uint64_t next_round_ = 0;
  const Work* work_ = nullptr;
  std::unique_ptr<StagedOperation> staged_;
  std::vector<Segment> part_;
  int next_root_ = 0;
};

}  // namespace

size_t NativeStagingBytesPerMember() { return Staging::BytesPerMember(); }

std::unique_ptr<Backend> MakeNativeBackend(World* world, const Settings& settings) {
  return std::make_unique<Native>(world, settings);
}

}  // namespace farandole
