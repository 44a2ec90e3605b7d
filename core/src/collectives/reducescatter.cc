// Reduce-scatter through staging. In one node every member reduces its own part. Among several nodes every member
// reduces the shards that it owns of all nodes' parts; then the owners in the nodes where these belong reduce them
// across the nodes.
//
//                one node                                 several nodes
//   write        the others' pieces -> my slot (partition.h)   all pieces -> my slot
//   make         my piece of all members -> output         my shards of all regions -> my result; then across nodes
//   finish       wait until all have read my slot          my piece <- the results of its owners
//
// The reductions and their order are those of allreduce, and so are the bits of the results.
#include <memory>

#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/cache.h"

namespace farandole {
namespace {

class StagedReducescatter final : public StagedOperation {
 public:
  explicit StagedReducescatter(const OperationStart& start)
      : StagedOperation(start, Parts::RoundsInOneSlot(start.task->rank_bytes, kSlotBytes)),
        parts_(task_->set->layout, task_->rank_bytes, element_bytes(), rounds()),
        shard_count_(partition().ShardCount(parts_.total_bytes())) {}

 protected:
  void Write(uint64_t t) override {
    std::byte* const slot = staging_->slot(staging_->member(), number(t));
    for (const Parts::Piece& piece : parts_.PiecesOf(t)) {
      const bool read_in_place =
          one_node() && piece.position == task_->set->position && task_->buffers[0].input != nullptr;
      if (!read_in_place)
        ReadInput(task_->buffers[0], piece.vector_offset, piece.size_bytes, slot + piece.round_offset);
    }
  }

  void Make(uint64_t t) override {
    if (one_node()) return ReduceOwnPart(t);
    const Scale scale = ScalesBeforeExchange(*task_) ? task_->scale : Scale();
    for (const Range& region : parts_.RegionsOf(parts_.PiecesOf(t))) {
      const Range mine = OwnedIn(region, staging_->member());
      ReduceRange(t, mine, nullptr, scale, staging_->result(staging_->member(), number(t)) + mine.begin);
    }
    StartExchange(t);
  }

  bool Finish(uint64_t t) override {
    if (!staging_->AllCombined(number(t) + 1)) return false;
    if (one_node()) return true;
    const Range region = parts_.RegionsOf(parts_.PiecesOf(t))[static_cast<size_t>(partition().node)];
    const Parts::Piece mine = MyPiece(t);
    for (int m = 0; m < staging_->count(); ++m) {
      const Parts::Piece piece = Parts::Within(mine, OwnedIn(region, m));
      WriteOutput(task_->buffers[0], piece.part_offset, piece.size_bytes,
                  staging_->result(m, number(t)) + piece.round_offset);
    }
    return true;
  }

 private:
  size_t element_bytes() const { return SizeOf(task_->dtype); }

  Parts::Piece MyPiece(uint64_t t) const {
    return parts_.PiecesOf(t)[partition().ranks_before() + static_cast<size_t>(staging_->member())];
  }

  // the part of a region that the member owns
  Range OwnedIn(Range region, int member) const {
    const auto width = static_cast<int64_t>(element_bytes());
    const Range elements = partition().OwnedBy(member, shard_count_, region.size() / width, element_bytes());
    return {region.begin + elements.begin * width, region.begin + elements.end * width};
  }

  void ReduceOwnPart(uint64_t t) {
    const Parts::Piece piece = MyPiece(t);
    const IoBuffer& buffer = task_->buffers[0];
    if (buffer.output == nullptr) return;
    const auto* const input = static_cast<const std::byte*>(buffer.input);
    const Range range{static_cast<int64_t>(piece.round_offset),
                      static_cast<int64_t>(piece.round_offset + piece.size_bytes)};
    ReduceRange(t, range, input != nullptr ? input + piece.vector_offset : nullptr, task_->scale,
                static_cast<std::byte*>(buffer.output) + piece.part_offset);
    for (int m = 0; m < staging_->count(); ++m) {
      if (m != staging_->member()) AcquireLines(staging_->slot(m, number(t)) + piece.round_offset, piece.size_bytes);
    }
  }

  // Reduces a range of the slots. own: this rank's values, where they are not in its slot.
  void ReduceRange(uint64_t t, Range range, const void* own, Scale scale, std::byte* to) {
    if (range.size() == 0) return;
    std::vector<const void*> inputs;
    for (int m = 0; m < staging_->count(); ++m) inputs.push_back(staging_->slot(m, number(t)) + range.begin);
    if (own != nullptr) inputs[static_cast<size_t>(staging_->member())] = own;
    Reduce(task_->dtype, task_->reduce, inputs.data(), inputs.size(),
           static_cast<size_t>(range.size()) / element_bytes(), scale, to);
  }

  void StartExchange(uint64_t t) {
    const Scale scale = ScalesBeforeExchange(*task_) ? Scale() : task_->scale;
    const std::vector<Range> regions = parts_.RegionsOf(parts_.PiecesOf(t));
    const ShardRange shards = ShardsOf(partition().member, partition().member_count(), shard_count_);
    std::byte* const result = staging_->result(staging_->member(), number(t));
    for (int shard = shards.begin; shard < shards.end; ++shard) {
      RunPlan plan = PlanOfReduction(*task_, scale);
      for (const Range& region : regions)
        AppendBlock(result, ShardOf(region, element_bytes(), shard, shard_count_), &plan);
      exchange_->Add(ShardExchange::Kind::kReduceScatter, shard, shard_count_, std::move(plan));
    }
  }

  const Parts parts_;
  const int shard_count_;
};

// ---- flat: over links alone

Status ReducescatterFlat(const OperationStart& start) {
  const Task& task = *start.task;
  const IoBuffer& buffer = task.buffers[0];
  const std::vector<size_t> offsets = PartOffsets(task.rank_bytes);
  const size_t size_bytes = offsets.back() + task.rank_bytes.back();
  const auto* source = static_cast<const std::byte*>(buffer.input);
  if (ScalesFirst(task) && size_bytes > 0 && source != nullptr) {
    std::byte* const scaled = start.scratch->Get(size_bytes);
    if (scaled == nullptr) return Internal("no memory: ", size_bytes, " bytes for a tensor that is scaled");
    ScaleInto(task, source, size_bytes, scaled);
    source = scaled;
  }
  RunPlan plan = PlanOfReduction(task, ScalesFirst(task) ? Scale() : task.scale);
  for (size_t p = 0; p < offsets.size(); ++p) {
    const bool is_mine = static_cast<int>(p) == task.set->position;
    plan.blocks.push_back(
        {source ? source + offsets[p] : nullptr, is_mine ? buffer.output : nullptr, task.rank_bytes[p]});
  }
  start.exchange->Add(ShardExchange::Kind::kReduceScatter, 0, 1, std::move(plan));
  return Status::Ok();
}

}  // namespace

// Divides rows evenly; the first positions get one more where they do not divide.
std::vector<int64_t> EvenRows(const ReportedRows& reported, Task* task) {
  const int64_t positions = task->set->size();
  const auto rows_of = [&](int64_t position) {
    return reported.mine / positions + (position < reported.mine % positions ? 1 : 0);
  };
  for (int64_t p = 0; p < positions; ++p)
    task->rank_bytes.push_back(static_cast<size_t>(rows_of(p)) * reported.row_bytes);
  return {rows_of(task->set->position)};
}

Status StartReducescatter(const OperationStart& start, std::unique_ptr<StagedOperation>* staged) {
  if (start.is_flat) return ReducescatterFlat(start);
  *staged = std::make_unique<StagedReducescatter>(start);
  return Status::Ok();
}

}  // namespace farandole
