// Allgather through staging.
//
//              one group                           several groups, some with several members
//   put        my chunk -> my slot                 my piece -> my slot, at its place in the round (partition.h)
//   combine    the others' slots -> output         the slots of my group -> output; the shards of my group's region
//                                                  that I own -> my result; then these go to their owners in the
//                                                  other groups, whose shards come into my result
//   finish     wait until all have read my slot    the other groups' regions: the owners' results -> output
//
// The bytes of every group cross once per shard.
#include <algorithm>
#include <cstring>
#include <memory>

#include "algorithms/partition.h"
#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/cache.h"

namespace farandole {
namespace {

uint64_t Rounds(const std::vector<size_t>& rank_bytes) {
  return SlotsFor(*std::max_element(rank_bytes.begin(), rank_bytes.end()));
}

class StagedAllgather final : public StagedOperation {
 public:
  explicit StagedAllgather(const OperationStart& start)
      : StagedOperation(start, Rounds(start.task->rank_bytes)), offsets_(PartOffsets(start.task->rank_bytes)) {}

 protected:
  void Put(uint64_t t) override {
    const int me = staging_->member();
    std::byte* const slot = staging_->slot(me, number(t));
    ReadInput(task_->buffers[0], t * kSlotBytes, ChunkOf(me, t), slot);
    WriteOutput(task_->buffers[0], offsets_[static_cast<size_t>(me)] + t * kSlotBytes, ChunkOf(me, t), slot);
  }

  void Make(uint64_t t) override {
    for (int k = 1; k < staging_->count(); ++k) {
      const int member = (staging_->member() + k) % staging_->count();
      WriteOutput(task_->buffers[0], offsets_[static_cast<size_t>(member)] + t * kSlotBytes, ChunkOf(member, t),
                  staging_->slot(member, number(t)));
      if (staging_->count() == 2) TakeLines(staging_->slot(member, number(t)), ChunkOf(member, t));
    }
  }

  bool Finish(uint64_t t) override { return staging_->AllCombined(number(t) + 1); }

 private:
  // bytes of the member's part in round t
  size_t ChunkOf(int member, uint64_t t) const {
    const size_t bytes = task_->rank_bytes[static_cast<size_t>(member)];
    return bytes <= t * kSlotBytes ? 0 : std::min(kSlotBytes, bytes - t * kSlotBytes);
  }

  std::vector<size_t> offsets_;
};

class GroupedAllgather final : public StagedOperation {
 public:
  GroupedAllgather(const OperationStart& start, const Parts& parts)
      : StagedOperation(start, parts.rounds()),
        parts_(parts),
        shard_count_(partition().ShardCount(parts.total_bytes())) {}

 protected:
  void Put(uint64_t t) override {
    for (const Parts::Piece& piece : parts_.PiecesOf(t)) {
      if (piece.position != task_->set->position) continue;
      ReadInput(task_->buffers[0], piece.part_offset, piece.size_bytes, SlotOf(piece, t));
    }
  }

  void Make(uint64_t t) override {
    StartCrossing(t);
    TakeOwnGroup(t);
  }

  bool Finish(uint64_t t) override {
    if (!staging_->AllCombined(number(t) + 1)) return false;
    const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
    const std::vector<Range> regions = parts_.RegionsOf(pieces);
    for (int shard = 0; shard < shard_count_; ++shard) {
      const int owner = OwnerOfShard(partition().member_count(), shard, shard_count_);
      for (const Parts::Piece& whole : pieces) {
        if (IsInMyGroup(whole)) continue;
        const auto group = static_cast<size_t>(partition().layout->group_of[static_cast<size_t>(whole.position)]);
        const Parts::Piece piece = Parts::Within(whole, ShardOf(regions[group], shard));
        WriteOutput(task_->buffers[0], piece.vector_offset, piece.size_bytes,
                    staging_->result(owner, number(t)) + piece.round_offset);
      }
    }
    return true;
  }

 private:
  bool IsInMyGroup(const Parts::Piece& piece) const {
    return partition().layout->group_of[static_cast<size_t>(piece.position)] == partition().group;
  }

  // of a member of my group
  std::byte* SlotOf(const Parts::Piece& piece, uint64_t t) const {
    const int member = partition().layout->member_of[static_cast<size_t>(piece.position)];
    return staging_->slot(member, number(t)) + piece.round_offset;
  }

  void TakeOwnGroup(uint64_t t) {
    for (const Parts::Piece& piece : parts_.PiecesOf(t)) {
      if (IsInMyGroup(piece)) WriteOutput(task_->buffers[0], piece.vector_offset, piece.size_bytes, SlotOf(piece, t));
    }
  }

  void StartCrossing(uint64_t t) {
    const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
    const std::vector<Range> regions = parts_.RegionsOf(pieces);
    std::byte* const result = staging_->result(staging_->member(), number(t));
    const ShardRange shards = ShardsOf(partition().member, partition().member_count(), shard_count_);
    for (int shard = shards.begin; shard < shards.end; ++shard) {
      const Range mine = ShardOf(regions[static_cast<size_t>(partition().group)], shard);
      for (const Parts::Piece& whole : pieces) {
        const Parts::Piece piece = Parts::Within(whole, mine);
        if (piece.size_bytes > 0) std::memcpy(result + piece.round_offset, SlotOf(piece, t), piece.size_bytes);
      }
      RunPlan plan;
      for (const Range& region : regions) {
        const Range bytes = ShardOf(region, shard);
        std::byte* const at = result + bytes.begin;
        plan.blocks.push_back({at, at, static_cast<size_t>(bytes.size())});
      }
      exchange_->Add(ShardExchange::Kind::kAllgather, shard, shard_count_, std::move(plan));
    }
  }

  Range ShardOf(Range region, int shard) const {
    const Range bytes = BlockRange(region.size(), 1, shard, shard_count_);
    return {region.begin + bytes.begin, region.begin + bytes.end};
  }

  const Parts parts_;
  const int shard_count_;
};

// ---- over links

Status AllgatherOnLinks(const OperationStart& start) {
  const IoBuffer& buffer = start.task->buffers[0];
  const std::vector<size_t>& sizes = start.task->rank_bytes;
  const std::vector<size_t> offsets = PartOffsets(sizes);
  const auto me = static_cast<size_t>(start.task->set->position);
  auto* output = static_cast<std::byte*>(buffer.output);
  if (output != nullptr && output + offsets[me] != buffer.input) ReadInput(buffer, 0, sizes[me], output + offsets[me]);
  if (output == nullptr && start.exchange->PassesBlocksOn()) {
    output = start.scratch->Get(offsets.back() + sizes.back() + 1);
    if (output == nullptr) return Internal("no memory for the parts of other ranks that an allgather passes on");
  }
  RunPlan plan;
  for (size_t p = 0; p < offsets.size(); ++p)
    plan.blocks.push_back({p == me ? buffer.input : nullptr, output ? output + offsets[p] : nullptr, sizes[p]});
  start.exchange->Add(ShardExchange::Kind::kAllgather, 0, 1, std::move(plan));
  return Status::Ok();
}

}  // namespace

std::vector<int64_t> AllRows(const ReportedRows& reported, Task* task) {
  std::vector<int64_t> rows;
  for (size_t p = 0; p < static_cast<size_t>(task->set->size()); ++p) {
    rows.push_back(reported.Of(p));
    task->rank_bytes.push_back(static_cast<size_t>(rows.back()) * reported.row_bytes);
  }
  return rows;
}

Status StartAllgather(const OperationStart& start, std::unique_ptr<StagedOperation>* staged) {
  const Task& task = *start.task;
  if (start.on_links) return AllgatherOnLinks(start);
  if (task.set->local()) {
    *staged = std::make_unique<StagedAllgather>(start);
  } else {
    *staged = std::make_unique<GroupedAllgather>(start, Parts(task.set->layout, task.rank_bytes, 1, kSlotBytes));
  }
  return Status::Ok();
}

}  // namespace farandole
