// Allgather through staging.
//
//              one node                           several nodes, some with several members
//   write      my chunk -> my slot                 my piece -> my slot, at its place in the round (partition.h)
//   make       the others' slots -> output         the slots of my node -> output; the shards of my node's region
//                                                  that I own -> my result; then these go to their owners in the
//                                                  other nodes, whose shards come into my result
//   finish     wait until all have read my slot    the other nodes' regions: the owners' results -> output
//
// The bytes of every node cross once per shard.
#include <algorithm>
#include <cstring>
#include <memory>

#include "algorithms/partition.h"
#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/cache.h"

namespace farandole {
namespace {

// In one node each member's piece has a slot of its own.
uint64_t RoundsOf(const Task& task) {
  if (!task.set->local()) return Parts::RoundsInOneSlot(task.rank_bytes, kSlotBytes);
  return SlotsFor(*std::max_element(task.rank_bytes.begin(), task.rank_bytes.end()));
}

class StagedAllgather final : public StagedOperation {
 public:
  explicit StagedAllgather(const OperationStart& start)
      : StagedOperation(start, RoundsOf(*start.task)),
        parts_(task_->set->layout, task_->rank_bytes, 1, rounds()),
        shard_count_(partition().ShardCount(parts_.total_bytes())),
        first_(partition().ranks_before()) {}

 protected:
  void Write(uint64_t t) override {
    const Parts::Piece mine = parts_.PiecesOf(t)[first_ + static_cast<size_t>(staging_->member())];
    ReadInput(task_->buffers[0], mine.part_offset, mine.size_bytes, SlotOf(mine, t));
    WriteOutput(task_->buffers[0], mine.vector_offset, mine.size_bytes, SlotOf(mine, t));
  }

  void Make(uint64_t t) override {
    if (!one_node()) StartExchange(t);
    const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
    for (int k = 1; k < staging_->count(); ++k) {
      const auto member = static_cast<size_t>((staging_->member() + k) % staging_->count());
      const Parts::Piece& piece = pieces[first_ + member];
      WriteOutput(task_->buffers[0], piece.vector_offset, piece.size_bytes, SlotOf(piece, t));
      if (one_node() && staging_->count() == 2) AcquireLines(SlotOf(piece, t), piece.size_bytes);
    }
  }

  bool Finish(uint64_t t) override {
    if (!staging_->AllCombined(number(t) + 1)) return false;
    if (one_node()) return true;
    const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
    const std::vector<Range> regions = parts_.RegionsOf(pieces);
    for (int shard = 0; shard < shard_count_; ++shard) {
      const int owner = OwnerOfShard(partition().member_count(), shard, shard_count_);
      for (const Parts::Piece& whole : pieces) {
        const int node = partition().layout->node_of[static_cast<size_t>(whole.position)];
        if (node == partition().node) continue;
        const Range region = regions[static_cast<size_t>(node)];
        const Parts::Piece piece = Parts::Within(whole, ShardOf(region, 1, shard, shard_count_));
        WriteOutput(task_->buffers[0], piece.vector_offset, piece.size_bytes,
                    staging_->result(owner, number(t)) + piece.round_offset);
      }
    }
    return true;
  }

 private:
  // Of a member of my node.
  std::byte* SlotOf(const Parts::Piece& piece, uint64_t t) const {
    const int member = partition().layout->member_of[static_cast<size_t>(piece.position)];
    return staging_->slot(member, number(t)) + (one_node() ? 0 : piece.round_offset);
  }

  void StartExchange(uint64_t t) {
    const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
    const std::vector<Range> regions = parts_.RegionsOf(pieces);
    std::byte* const result = staging_->result(staging_->member(), number(t));
    const ShardRange shards = ShardsOf(partition().member, partition().member_count(), shard_count_);
    for (int shard = shards.begin; shard < shards.end; ++shard) {
      const Range mine = ShardOf(regions[static_cast<size_t>(partition().node)], 1, shard, shard_count_);
      for (const Parts::Piece& whole : pieces) {
        const Parts::Piece piece = Parts::Within(whole, mine);
        if (piece.size_bytes > 0) std::memcpy(result + piece.round_offset, SlotOf(piece, t), piece.size_bytes);
      }
      RunPlan plan;
      for (const Range& region : regions) AppendBlock(result, ShardOf(region, 1, shard, shard_count_), &plan);
      exchange_->Add(ShardExchange::Kind::kAllgather, shard, shard_count_, std::move(plan));
    }
  }

  const Parts parts_;
  const int shard_count_;
  const size_t first_;  // the piece of the node's first member among those of a round
};

// ---- flat: over links alone

Status AllgatherFlat(const OperationStart& start) {
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
  if (start.is_flat) return AllgatherFlat(start);
  *staged = std::make_unique<StagedAllgather>(start);
  return Status::Ok();
}

}  // namespace farandole
