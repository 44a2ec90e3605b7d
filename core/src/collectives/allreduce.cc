// Allreduce through staging: reduce-scatter in the group, exchange of each shard between the groups, allgather in the
// group, all three chunk by chunk. The division is that of Thakur, Rabenseifner and Gropp, see algorithms/schedule.h.
//
//   put      my whole chunk -> my slot                    (without the shards I own when they can be read in place)
//   combine  my shards of all members -> their results     (one fold in order R), then across the groups
//   finish   the other members' shards <- their results, from my slot
//
// A member writes the results of its shards into the slots of all others, where the shards came from. So only two
// members use a line of a slot, and each reads it before it writes it. To write a line that another core has only read
// is far dearer, above all for cores without a common cache. Two cores of an AMD EPYC (Zen 4), nanoseconds a line:
//
//                                                            near    far
//   read a line that the other has written                    0.8    2.5
//   then write it                                             0.7    0.7
//   write a line that one has written and the other read      6.2     28
//
// Microseconds of an allreduce of float32, with memory for results that all others read, and with slots; of four
// members in the rounds that are best for each, 512 and 256 KB. The limit is the time to read as many bytes that the
// other has just written:
//
//                         near  limit  results apart   in slots      far  limit  results apart   in slots
//   2 members  64 KB              1.1            3.3        1.8             2.1            8.1        3.5
//              1 MB                19             39         27              30            103         39
//              4 MB                73            143        104             137            407        154
//   4 members  1 MB                              160        149                            741        206
//   on 2 cores 64 MB                           17100      17500                          50300      19000
//
// Each byte crosses the memory bus about as often as in a ring over shared memory, but with two waits per chunk instead
// of 2 (n-1).
#include <algorithm>
#include <cstring>
#include <memory>

#include "algorithms/choose_path.h"
#include "collectives/links.h"
#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/cache.h"

namespace farandole {
namespace {

// Shards are folded and delivered piece by piece. Of two members the cache lines that the next piece will write are
// fetched meanwhile; with four that gained nothing. Smaller pieces cost calls (with 1 KiB four members took 10 %
// longer); larger ones ask for more lines than a core can fetch at a time.
constexpr size_t kPieceBytes = 2 << 10;

uint64_t Rounds(size_t total_bytes, size_t chunk_bytes) { return (total_bytes + chunk_bytes - 1) / chunk_bytes; }

// One round while it fits the second-level cache twice, then at least two, so that copying in, folding and copying out
// overlap. Two members, distant cores, one, two, four rounds: 256 KB took 10.3, 10.6, 12.5 us, 512 KB 12.9, 12.3, 12.7
// (on near cores), 1 MB -, 37.8, 39.6.
//
// Three rounds are under way, each with its slots and its part of the tensor, and the output should still fit the
// cache. So rounds are a fraction of a slot. Two members on two Intel cores of 2 MB each, and four on two AMD cores of
// 1 MB, near each other and far; microseconds:
//
//                    512 KB   256 KB   128 KB                        512 KB   256 KB   128 KB    64 KB
//   2 members 1 MB     75.4     70.7     69.8    4 members   1 MB       142      149      163      180
//             4 MB      387      365      355               16 MB      4640     4290     4330     4770
//            16 MB     1562     1517     1478               64 MB     19700    17500    18800    19600
//            64 MB     7400     7354     8121    far         1 MB       192      206      234      282
//           256 MB    44200    39800    38000               64 MB     18700    19000    21200    24300
//
// Three and four members that share two Intel cores of 2 MB gain by smaller rounds. Microseconds, minimums:
//
//                         512 KB   256 KB   128 KB    64 KB    32 KB                         256 KB   128 KB    64 KB
//   4 members  512 KB        107      106       96       97      106    3 members 512 KB         86       81       84
//                1 MB        292      272      229      220      235                1 MB        228      187      184
//                4 MB       1098     1020      928      912      992                4 MB        943      805      788
//               64 MB      26500    26400    23200    22200    24000               64 MB      27800    23000    22600
//
// Where such rounds were measured to be better, more than two members take one round up to 128 KB only. 256 KB in two
// rounds and in one, minimum (median): four members 46.5 (58) and 49.6 (66), three 41.5 (64) and 41.4 (75).
//
// Among several groups a round has 64 KB for each shard: the messages between two of four groups then have 16 KB, and
// 16 rounds (staging.h) of two members have 2 MB. `largest_group` is the number of shards, since all groups must agree.
// 64 MB, two hosts on two cores, milliseconds with rounds of 64 and of 128 KB for each shard, 16 under way: two ranks
// each 46 and 58; with 2.5 ms a port 352 and 189. Four ranks each took 98 with 64 KB and 132 with 32 KB.
size_t ChunkBytes(size_t total_bytes, int largest_group, int group_count, size_t tuned_bytes) {
  constexpr size_t kOneRound = 256 << 10, kLeastOneRound = 128 << 10, kShardRound = 64 << 10, kGrain = 4096;
  const size_t in_one_group = tuned_bytes > 0 ? std::min(tuned_bytes, kSlotBytes) : static_cast<size_t>(kRoundBytes);
  const bool is_crowd = group_count == 1 && largest_group > 2;
  const size_t one_round = is_crowd ? std::clamp(in_one_group, kLeastOneRound, kOneRound) : kOneRound;
  if (total_bytes <= one_round) return std::max(total_bytes, size_t{1});
  const size_t among_groups = std::min(kSlotBytes, static_cast<size_t>(largest_group) * kShardRound);
  return std::min(group_count > 1 ? among_groups : in_one_group, (total_bytes / 2 + kGrain - 1) / kGrain * kGrain);
}

size_t ChunkBytesOf(const StagedStart& start) {
  const Partition& partition = start.exchange->partition();
  return ChunkBytes(start.task->TotalBytes(), partition.layout->shard_count(), partition.group_count(),
                    start.round_bytes);
}

void AskForLines(const std::byte* begin, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes; at += kLineBytes) AskForLine(begin + at);
}

class StagedAllreduce final : public CrossingOperation {
 public:
  explicit StagedAllreduce(const StagedStart& start)
      : CrossingOperation(start, Rounds(start.task->TotalBytes(), ChunkBytesOf(start))),
        vector_(&task_->buffers),
        element_bytes_(SizeOf(task_->dtype)),
        chunk_bytes_(ChunkBytesOf(start)),
        shard_count_(exchange_->partition().ShardCount(vector_.size_bytes())) {}

 protected:
  void Put(uint64_t t) override {
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
    FoldOwnShards(t);
    if (OutputIsFinal()) return;
    exchange_->Allreduce(*task_, ScalesInGroup() ? Scale() : task_->scale,
                         ResultPlace(t) + OwnedBy(staging_->member(), t).begin, chunk(t).element_count, shard_count_);
  }

  // In one group FoldOwnShards has delivered what is final.
  void Exchanged(uint64_t t) override {
    if (OutputIsFinal()) return;
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
    const Range elements = exchange_->partition().OwnedBy(member, shard_count_, chunk(t).element_count, element_bytes_);
    const auto width = static_cast<int64_t>(element_bytes_);
    return {elements.begin * width, elements.end * width};
  }

  // Where the results of this member's shards are made: in the slot of the first that reads them there, if any does.
  std::byte* ResultPlace(uint64_t t) const {
    return staging_->count() > 1 ? staging_->slot(FirstReader(), number(t))
                                 : staging_->result(staging_->member(), number(t));
  }

  int FirstReader() const { return staging_->member() == 0 ? 1 : 0; }

  void FoldOwnShards(uint64_t t) {
    const Range own = OwnedBy(staging_->member(), t);
    if (own.size() == 0) return;
    const auto begin = static_cast<size_t>(own.begin), size_bytes = static_cast<size_t>(own.size());
    FindInputs(t, own);
    auto* const output =
        static_cast<std::byte*>(OutputIsFinal() ? vector_.Output(chunk(t).offset_bytes + begin, size_bytes) : nullptr);
    std::byte* const place = ResultPlace(t) + begin;
    if (staging_->count() != 2 || output == nullptr) return FoldInPieces(t, own, output != nullptr ? output : place);
    FoldTwice(task_->dtype, task_->reduce, inputs_[0], inputs_[1], size_bytes / element_bytes_, task_->scale, output,
              {place});
  }

  void FoldInPieces(uint64_t t, Range own, std::byte* result) {
    constexpr auto kPiece = static_cast<int64_t>(kPieceBytes);
    for (Range piece{own.begin, own.begin}; piece.begin < own.end; piece.begin = piece.end) {
      piece.end = std::min(piece.begin + kPiece, own.end);
      const auto next_bytes = static_cast<size_t>(std::min(kPiece, own.end - piece.end));
      if (staging_->count() == 2) AskForLines(ResultPlace(t) + piece.end, next_bytes);
      Fold(task_->dtype, task_->reduce, inputs_.data(), inputs_.size(),
           static_cast<size_t>(piece.size()) / element_bytes_, ScalesInGroup() ? task_->scale : Scale(), result);
      for (const void*& input : inputs_) input = static_cast<const std::byte*>(input) + piece.size();
      if (OutputIsFinal()) Deliver(t, piece, result);
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

  // Finds the members' values of a range of the chunk, in order. This rank's own stay in the tensor where Put left them
  // there.
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

  bool OutputIsFinal() const { return exchange_->partition().group_count() == 1; }  // when it is folded

  // In one group the fold there is the last one.
  bool ScalesInGroup() const { return OutputIsFinal() || ScalesBeforeCrossing(*task_); }

  IoVector vector_;
  size_t element_bytes_;
  size_t chunk_bytes_;
  int shard_count_;
  int finished_members_ = 0;
  std::vector<const void*> inputs_;
};

// ---- over links

class AllreduceOnLinks final : public VectorOnLinks {
 public:
  explicit AllreduceOnLinks(const LinkStart& start) : VectorOnLinks(start) {}

  Status Start() override {
    const size_t size_bytes = vector_.size_bytes();
    if (size_bytes == 0) return Status::Ok();
    FRD_RETURN_IF_ERROR(FindPlace());
    const auto* source = static_cast<const std::byte*>(vector_.Input(0, size_bytes));
    if (source == nullptr) {
      vector_.ReadInput(0, size_bytes, place_);
      source = place_;
    }
    const size_t element_count = size_bytes / SizeOf(task_->dtype);
    Scale scale = task_->scale;
    if (ScalesFirst()) ScaleInto(place_, size_bytes, &source, &scale);
    exchange_->Allreduce(*task_, scale, place_, static_cast<int64_t>(element_count), 1, source);
    return Status::Ok();
  }
};

}  // namespace

std::unique_ptr<StagedOperation> MakeStagedAllreduce(const StagedStart& start) {
  return std::make_unique<StagedAllreduce>(start);
}

std::unique_ptr<LinkOperation> MakeAllreduceOnLinks(const LinkStart& start) {
  return std::make_unique<AllreduceOnLinks>(start);
}

}  // namespace farandole
