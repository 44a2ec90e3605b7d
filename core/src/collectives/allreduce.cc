// Allreduce through staging: reduce-scatter in the node, exchange of each shard between the nodes, allgather in the
// node, all three chunk by chunk. The division is that of Thakur, Rabenseifner and Gropp, see algorithms/schedule.h.
//
//   write    my whole chunk -> my slot                    (without the shards I own when they can be read in place)
//   make     my shards of all members -> their results     (one reduction in tree order), then across the nodes
//   finish   the other members' shards <- their results, from my slot
//
// A member writes the results of its shards into the slots of all others, where the shards came from. So only two
// members use a line of a slot, and each reads it before it writes it. To write a line that another core has only read
// is far dearer, above all for cores without a common cache
// (docs/benchmarks/shared-memory.md#results-in-the-slots-of-others).
//
// Each byte crosses the memory bus about as often as in a ring over shared memory, but with two waits per chunk instead
// of 2 (n-1).
#include <algorithm>
#include <cstring>
#include <memory>

#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/cache.h"

namespace farandole {
namespace {

// Shards are reduced and delivered piece by piece. Of two members the cache lines that the next piece will write are
// fetched meanwhile; with four that gained nothing. Smaller pieces cost calls; larger ones ask for more lines than a
// core can fetch at a time (docs/benchmarks/shared-memory.md#rounds).
constexpr size_t kPieceBytes = 2 << 10;

uint64_t Rounds(size_t total_bytes, size_t chunk_bytes) { return (total_bytes + chunk_bytes - 1) / chunk_bytes; }

// One round while it fits the second-level cache twice, then at least two, so that copying in, reducing and copying out
// overlap. Three rounds are under way, each with its slots and its part of the tensor, and the output should still fit
// the cache. Among several nodes a round has 64 KB for each shard; `shard_count` is the same in all nodes
// (docs/benchmarks/shared-memory.md#rounds).
size_t ChunkBytes(size_t total_bytes, int shard_count, int node_count) {
  constexpr size_t kRoundBytes = 256 << 10, kShardRoundBytes = 64 << 10, kGrain = 4096;
  if (total_bytes <= kRoundBytes) return std::max(total_bytes, size_t{1});
  const size_t among_nodes = std::min(kSlotBytes, static_cast<size_t>(shard_count) * kShardRoundBytes);
  return std::min(node_count > 1 ? among_nodes : kRoundBytes, (total_bytes / 2 + kGrain - 1) / kGrain * kGrain);
}

size_t ChunkBytesOf(const OperationStart& start) {
  const Partition& partition = start.exchange->partition();
  return ChunkBytes(start.task->TotalBytes(), partition.layout->shard_count(), partition.node_count());
}

void PrefetchRange(const std::byte* begin, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes; at += kLineBytes) PrefetchForWrite(begin + at);
}

class StagedAllreduce final : public StagedOperation {
 public:
  explicit StagedAllreduce(const OperationStart& start)
      : StagedOperation(start, Rounds(start.task->TotalBytes(), ChunkBytesOf(start))),
        vector_(&task_->buffers),
        element_bytes_(SizeOf(task_->dtype)),
        chunk_bytes_(ChunkBytesOf(start)),
        shard_count_(partition().ShardCount(vector_.size_bytes())) {}

 protected:
  void Write(uint64_t t) override {
    const auto [offset, element_count] = chunk(t);
    const size_t end = static_cast<size_t>(element_count) * element_bytes_;
    const Range own = OwnedBy(staging_->member(), t);
    const auto own_begin = static_cast<size_t>(own.begin), own_bytes = static_cast<size_t>(own.size());
    std::byte* const slot = staging_->slot(staging_->member(), number(t));
    if (vector_.Input(offset + own_begin, own_bytes) == nullptr) {
      vector_.ReadInput(offset, end, slot);
      return;
    }
    vector_.ReadInput(offset, own_begin, slot);
    vector_.ReadInput(offset + own_begin + own_bytes, end - own_begin - own_bytes, slot + own_begin + own_bytes);
  }

  void Make(uint64_t t) override {
    ReduceOwnShards(t);
    if (one_node()) return;
    exchange_->Allreduce(*task_, ScalesInNode() ? Scale() : task_->scale,
                         ResultPlace(t) + OwnedBy(staging_->member(), t).begin, chunk(t).element_count, shard_count_);
  }

  // In one node ReduceOwnShards has delivered what is final.
  void Exchanged(uint64_t t) override {
    if (one_node()) return;
    const Range own = OwnedBy(staging_->member(), t);
    Deliver(t, own, ResultPlace(t) + own.begin);
  }

  bool Finish(uint64_t t) override {
    for (; finished_members_ < staging_->count(); ++finished_members_) {
      if (finished_members_ == staging_->member()) continue;
      if (!staging_->HasCombined(finished_members_, number(t) + 1)) return false;
      const Range theirs = OwnedBy(finished_members_, t);
      WriteOutput(t, theirs, staging_->slot(staging_->member(), number(t)) + theirs.begin);
    }
    finished_members_ = 0;
    return true;
  }

 private:
  struct Chunk {
    size_t offset_bytes;
    int64_t element_count;
  };

  Chunk chunk(uint64_t t) const {
    const size_t offset = t * chunk_bytes_;
    return {offset, static_cast<int64_t>(std::min(chunk_bytes_, vector_.size_bytes() - offset) / element_bytes_)};
  }

  // in bytes of the chunk
  Range OwnedBy(int member, uint64_t t) const {
    const Range elements = partition().OwnedBy(member, shard_count_, chunk(t).element_count, element_bytes_);
    const auto width = static_cast<int64_t>(element_bytes_);
    return {elements.begin * width, elements.end * width};
  }

  // Where the results of this member's shards are made: in the slot of the first that reads them there, if any does.
  std::byte* ResultPlace(uint64_t t) const {
    return staging_->count() > 1 ? staging_->slot(FirstReader(), number(t))
                                 : staging_->result(staging_->member(), number(t));
  }

  int FirstReader() const { return staging_->member() == 0 ? 1 : 0; }

  void ReduceOwnShards(uint64_t t) {
    const Range own = OwnedBy(staging_->member(), t);
    if (own.size() == 0) return;
    const auto begin = static_cast<size_t>(own.begin), size_bytes = static_cast<size_t>(own.size());
    FindInputs(t, own);
    auto* const output =
        static_cast<std::byte*>(one_node() ? vector_.Output(chunk(t).offset_bytes + begin, size_bytes) : nullptr);
    std::byte* const place = ResultPlace(t) + begin;
    if (staging_->count() != 2 || output == nullptr) return ReduceInPieces(t, own, output != nullptr ? output : place);
    ReduceWithCopy(task_->dtype, task_->reduce, inputs_[0], inputs_[1], size_bytes / element_bytes_, task_->scale,
                   output, place);
  }

  void ReduceInPieces(uint64_t t, Range own, std::byte* result) {
    constexpr auto kPiece = static_cast<int64_t>(kPieceBytes);
    for (Range piece{own.begin, own.begin}; piece.begin < own.end; piece.begin = piece.end) {
      piece.end = std::min(piece.begin + kPiece, own.end);
      const auto next_bytes = static_cast<size_t>(std::min(kPiece, own.end - piece.end));
      if (staging_->count() == 2) PrefetchRange(ResultPlace(t) + piece.end, next_bytes);
      Reduce(task_->dtype, task_->reduce, inputs_.data(), inputs_.size(),
             static_cast<size_t>(piece.size()) / element_bytes_, ScalesInNode() ? task_->scale : Scale(), result);
      for (const void*& input : inputs_) input = static_cast<const std::byte*>(input) + piece.size();
      if (one_node()) Deliver(t, piece, result);
      result += piece.size();
    }
  }

  // Copies a range of the results to everywhere where they are not yet.
  void Deliver(uint64_t t, Range range, const std::byte* result) {
    for (int m = 0; m < staging_->count(); ++m) {
      std::byte* const place = staging_->slot(m, number(t)) + range.begin;
      if (m != staging_->member() && place != result) std::memcpy(place, result, static_cast<size_t>(range.size()));
    }
    WriteOutput(t, range, result);
  }

  // Finds the members' values of a range of the chunk, in order. This rank's own stay in the tensor where Write left
  // them there.
  void FindInputs(uint64_t t, Range own) {
    const auto begin = static_cast<size_t>(own.begin);
    inputs_.clear();
    inputs_.reserve(static_cast<size_t>(staging_->count()));
    for (int m = 0; m < staging_->count(); ++m) inputs_.push_back(staging_->slot(m, number(t)) + begin);
    const void* const in_place = vector_.Input(chunk(t).offset_bytes + begin, static_cast<size_t>(own.size()));
    if (in_place != nullptr) inputs_[static_cast<size_t>(staging_->member())] = in_place;
  }

  void WriteOutput(uint64_t t, Range range, const std::byte* from) {
    vector_.WriteOutput(chunk(t).offset_bytes + static_cast<size_t>(range.begin), static_cast<size_t>(range.size()),
                        from);
  }

  // In one node the reduction there is the last one.
  bool ScalesInNode() const { return one_node() || ScalesBeforeExchange(*task_); }

  IoVector vector_;
  size_t element_bytes_;
  size_t chunk_bytes_;
  int shard_count_;
  int finished_members_ = 0;
  std::vector<const void*> inputs_;
};

// ---- flat: over links alone

Status AllreduceFlat(const OperationStart& start) {
  const Task& task = *start.task;
  const IoVector vector(&task.buffers);
  const size_t size_bytes = vector.size_bytes();
  if (size_bytes == 0) return Status::Ok();
  std::byte* place = nullptr;
  FRD_RETURN_IF_ERROR(FindPlace(start, size_bytes, &place));
  const auto* source = static_cast<const std::byte*>(vector.Input(0, size_bytes));
  if (source == nullptr) {
    vector.ReadInput(0, size_bytes, place);
    source = place;
  }
  if (ScalesFirst(task)) {
    ScaleInto(task, source, size_bytes, place);
    source = place;
  }
  const auto element_count = static_cast<int64_t>(size_bytes / SizeOf(task.dtype));
  start.exchange->Allreduce(task, ScalesFirst(task) ? Scale() : task.scale, place, element_count, 1, source);
  return Status::Ok();
}

}  // namespace

Status StartAllreduce(const OperationStart& start, std::unique_ptr<StagedOperation>* staged) {
  if (start.is_flat) return AllreduceFlat(start);
  *staged = std::make_unique<StagedAllreduce>(start);
  return Status::Ok();
}

}  // namespace farandole
