// Broadcast through staging. Every node receives each byte once, spread over its shards.
//
//   write    root: chunk -> its slot, and its output
//   make     root's node: slot of the root -> output; owners also send their shards to the other nodes' owners
//            other nodes: owners receive their shards into their result
//   finish   root: all have read its slot      other nodes: the owners' results -> output
#include <algorithm>
#include <memory>

#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/cache.h"

namespace farandole {
namespace {

class StagedBroadcast final : public StagedOperation {
 public:
  explicit StagedBroadcast(const OperationStart& start)
      : StagedOperation(start, SlotsFor(start.task->TotalBytes())), vector_(&task_->buffers) {
    const Layout& layout = *partition().layout;
    root_node_ = layout.node_of[static_cast<size_t>(task_->root)];
    root_member_ = layout.member_of[static_cast<size_t>(task_->root)];
    in_root_node_ = partition().node == root_node_;
    shard_count_ = layout.shard_count();
  }

 protected:
  // Also writes the root's own output, where that differs from its input.
  void Write(uint64_t t) override {
    if (!IsRoot()) return;
    vector_.ReadInput(offset(t), size(t), PlaceOf(t));
    vector_.WriteOutput(offset(t), size(t), PlaceOf(t));
  }

  bool MayMake(uint64_t t) const override {
    // Where results are written, all members must have left that memory (staging.h). In the root's node only the root
    // writes.
    if (!in_root_node_) return staging_->AllPublished(number(t) + 1);
    return IsRoot() || staging_->HasPublished(root_member_, number(t) + 1);
  }

  void Make(uint64_t t) override {
    if (one_node()) return;
    const auto size_bytes = static_cast<int64_t>(size(t));
    const Range carried = partition().OwnedBy(staging_->member(), shard_count_, size_bytes, 1);
    exchange_->Broadcast(PlaceOf(t) + carried.begin, size_bytes, shard_count_, root_node_);
  }

  void Exchanged(uint64_t t) override {
    if (!in_root_node_ || IsRoot()) return;
    vector_.WriteOutput(offset(t), size(t), PlaceOf(t));
    if (IsOnlyReader()) AcquireLines(PlaceOf(t), size(t));
  }

  bool Finish(uint64_t t) override {
    if (in_root_node_) return !IsRoot() || staging_->AllCombined(number(t) + 1);
    if (!staging_->AllCombined(number(t) + 1)) return false;
    for (int m = 0; m < staging_->count(); ++m) {
      const Range shard = partition().OwnedBy(m, shard_count_, static_cast<int64_t>(size(t)), 1);
      vector_.WriteOutput(offset(t) + static_cast<size_t>(shard.begin), static_cast<size_t>(shard.size()),
                          staging_->result(m, number(t)) + shard.begin);
    }
    return true;
  }

 private:
  bool IsRoot() const { return in_root_node_ && staging_->member() == root_member_; }
  bool IsOnlyReader() const { return staging_->count() == 2 && one_node(); }
  size_t offset(uint64_t t) const { return t * kSlotBytes; }
  size_t size(uint64_t t) const { return std::min(kSlotBytes, vector_.size_bytes() - offset(t)); }

  std::byte* PlaceOf(uint64_t t) const {
    return in_root_node_ ? staging_->slot(root_member_, number(t)) : staging_->result(staging_->member(), number(t));
  }

  IoVector vector_;
  int root_node_;
  int root_member_;
  bool in_root_node_;
  int shard_count_;
};

// ---- flat: over links alone

// The root's memory is only read.
Status BroadcastFlat(const OperationStart& start) {
  const Task& task = *start.task;
  const IoVector vector(&task.buffers);
  const size_t size_bytes = vector.size_bytes();
  if (size_bytes == 0) return Status::Ok();
  const bool is_root = task.set->position == task.root;
  const void* const input = is_root ? vector.Input(0, size_bytes) : nullptr;
  auto* place = static_cast<std::byte*>(const_cast<void*>(input));
  *start.result = place;
  if (place == nullptr) {
    FRD_RETURN_IF_ERROR(FindPlace(start, size_bytes, &place));
    if (is_root) vector.ReadInput(0, size_bytes, place);
  }
  start.exchange->Broadcast(place, static_cast<int64_t>(size_bytes), 1, task.root);
  return Status::Ok();
}

}  // namespace

Status StartBroadcast(const OperationStart& start, std::unique_ptr<StagedOperation>* staged) {
  if (start.is_flat) return BroadcastFlat(start);
  *staged = std::make_unique<StagedBroadcast>(start);
  return Status::Ok();
}

}  // namespace farandole
