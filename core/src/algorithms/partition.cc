#include "algorithms/partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace farandole {

namespace {

// A piece is longer than its even share by less than two cache lines, since its borders fall on lines.
constexpr size_t kUnevenBytes = 128;

// Larger vectors take at least four rounds, so that copying in, reducing and copying out overlap.
constexpr size_t kOneRoundBytes = 256 << 10;
constexpr size_t kMinRounds = 4;

}  // namespace

size_t Partition::ranks_before() const {
  const auto end = layout->nodes.begin() + node;
  return std::accumulate(layout->nodes.begin(), end, size_t{0},
                         [](size_t sum, const std::vector<int>& ranks) { return sum + ranks.size(); });
}

std::vector<size_t> PartOffsets(const std::vector<size_t>& part_bytes) {
  std::vector<size_t> offsets;
  size_t offset = 0;
  for (size_t bytes : part_bytes) {
    offsets.push_back(offset);
    offset += bytes;
  }
  return offsets;
}

Range ShardOf(Range region, size_t element_bytes, int shard, int shard_count) {
  const auto width = static_cast<int64_t>(element_bytes);
  const Range elements = BlockRange(region.size() / width, element_bytes, shard, shard_count);
  return {region.begin + elements.begin * width, region.begin + elements.end * width};
}

uint64_t Parts::RoundsInOneSlot(const std::vector<size_t>& part_bytes, size_t slot_bytes) {
  const size_t total_bytes = std::accumulate(part_bytes.begin(), part_bytes.end(), size_t{0});
  const size_t room = slot_bytes - kUnevenBytes * part_bytes.size();
  if (total_bytes > kOneRoundBytes) return std::max((total_bytes + room - 1) / room, kMinRounds);
  return total_bytes > 0 ? 1 : 0;
}

Parts::Parts(const Layout& layout, const std::vector<size_t>& part_bytes, size_t element_bytes, uint64_t rounds)
    : layout_(&layout),
      part_bytes_(part_bytes),
      offsets_(PartOffsets(part_bytes)),
      element_bytes_(element_bytes),
      total_bytes_(std::accumulate(part_bytes.begin(), part_bytes.end(), size_t{0})),
      rounds_(rounds) {}

std::vector<Parts::Piece> Parts::PiecesOf(uint64_t t) const {
  std::vector<Piece> pieces;
  pieces.reserve(part_bytes_.size());
  size_t at = 0;
  for (const auto& node : layout_->nodes) {
    for (int position : node) {
      const auto p = static_cast<size_t>(position);
      const auto width = static_cast<int64_t>(element_bytes_);
      const Range elements = BlockRange(static_cast<int64_t>(part_bytes_[p]) / width, element_bytes_,
                                        static_cast<int>(t), static_cast<int>(rounds_));
      const auto begin = static_cast<size_t>(elements.begin * width);
      const auto size_bytes = static_cast<size_t>(elements.size() * width);
      pieces.push_back({position, offsets_[p] + begin, begin, at, size_bytes});
      at += size_bytes;
    }
  }
  return pieces;
}

std::vector<Range> Parts::RegionsOf(const std::vector<Piece>& pieces) const {
  std::vector<Range> regions;
  size_t i = 0;
  int64_t at = 0;
  for (const auto& node : layout_->nodes) {
    Range region{at, at};
    for (size_t m = 0; m < node.size(); ++m) region.end += static_cast<int64_t>(pieces[i++].size_bytes);
    at = region.end;
    regions.push_back(region);
  }
  return regions;
}

Parts::Piece Parts::Within(const Piece& piece, Range bytes_of_round) {
  const auto begin = std::max(piece.round_offset, static_cast<size_t>(bytes_of_round.begin));
  const auto end = std::min(piece.round_offset + piece.size_bytes, static_cast<size_t>(bytes_of_round.end));
  const size_t skipped = begin - piece.round_offset;
  if (begin >= end) return {piece.position, piece.vector_offset, piece.part_offset, piece.round_offset, 0};
  return {piece.position, piece.vector_offset + skipped, piece.part_offset + skipped, begin, end - begin};
}

size_t DefaultWindowBytes(int block_count) {
  constexpr size_t kMaxBytes = 256 << 10, kMaxChunkBytes = 1 << 20, kBorder = kBorderBytes;
  const size_t share_bytes = kMaxChunkBytes / static_cast<size_t>(block_count) / kBorder * kBorder;
  return std::clamp(share_bytes, kBorder, kMaxBytes);
}

size_t EvenWindowBytes(size_t block_bytes, size_t max_bytes) {
  constexpr size_t kBorder = kBorderBytes;
  const size_t windows = std::max<size_t>(1, (block_bytes + max_bytes - 1) / max_bytes);
  return std::max<size_t>(1, (block_bytes + windows * kBorder - 1) / (windows * kBorder)) * kBorder;
}

namespace {

// Rows for one chunk in every state of the pipeline, and a few more, so that a slow peer does not stop the others at
// once.
int64_t WindowOf(int phase_count, int under_way) { return ChunksBeforeLastPhase(phase_count, under_way) + under_way; }

std::vector<int> ReadersOfSlots(const Schedule& schedule) {
  std::vector<int> readers(schedule.slot_count, 0);
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    for (int operand : schedule.steps[i].operands) {
      if (operand != kOwnData) readers[operand] = static_cast<int>(i);
    }
  }
  return readers;
}

}  // namespace

int LagOf(int phase_count, int under_way) {
  const int waits = std::max(1, phase_count - 1);
  return (under_way + waits - 1) / waits;
}

StepCursor::StepCursor(const Schedule& schedule, const std::vector<int>& steps, int under_way) {
  const int64_t lag = LagOf(schedule.phase_count, under_way);
  for (int step : steps) stops_.push_back({step, schedule.steps[step].phase * lag});
  std::stable_sort(stops_.begin(), stops_.end(), [](const Stop& a, const Stop& b) { return a.delay > b.delay; });
}

void StepCursor::Restart(int64_t chunk_count) {
  chunk_count_ = chunk_count;
  tick_ = 0;
  at_ = 0;
  last_tick_ = stops_.empty() || chunk_count == 0 ? -1 : chunk_count - 1 + stops_.front().delay;
  SkipToChunk();
}

void StepCursor::Next() {
  ++at_;
  SkipToChunk();
}

// In the first and the last ticks some stops belong to chunks that do not exist.
void StepCursor::SkipToChunk() {
  for (; !ended(); ++tick_, at_ = 0) {
    for (; at_ < stops_.size(); ++at_) {
      if (chunk() >= 0 && chunk() < chunk_count_) return;
    }
  }
}

Progress::Progress(const Schedule* schedule, int under_way)
    : schedule_(schedule),
      window_(WindowOf(schedule->phase_count, under_way)),
      reader_of_slot_(ReadersOfSlots(*schedule)),
      chunk_in_row_(window_),
      left_in_row_(window_),
      complete_(window_ * schedule->steps.size()) {}

void Progress::Restart(int64_t chunk_count) {
  // A participant without steps (a broadcast to itself) is done at once.
  chunk_count_ = chunk_count;
  chunks_left_ = schedule_->steps.empty() ? 0 : chunk_count;
  for (int64_t row = 0; row < window_; ++row) chunk_in_row_[row] = row;
  std::fill(left_in_row_.begin(), left_in_row_.end(), schedule_->steps.size());
  std::fill(complete_.begin(), complete_.end(), uint8_t{0});
}

bool Progress::Ready(int64_t chunk, int step) const {
  if (chunk_in_row_[Row(chunk)] != chunk) return false;
  const Step& it = schedule_->steps[step];
  for (int earlier : it.after) {
    if (!IsComplete(chunk, earlier)) return false;
  }
  return it.kind != StepKind::kRecvScratch || SlotIsFree(chunk, it.slot);
}

void Progress::Complete(int64_t chunk, int step) {
  const size_t row = Row(chunk), step_count = schedule_->steps.size();
  complete_[row * step_count + step] = 1;
  if (--left_in_row_[row] > 0) return;
  std::fill_n(complete_.begin() + row * step_count, step_count, uint8_t{0});
  left_in_row_[row] = step_count;
  chunk_in_row_[row] += window_;
  --chunks_left_;
}

bool Progress::IsComplete(int64_t chunk, int step) const {
  const size_t row = Row(chunk);
  if (chunk_in_row_[row] != chunk) return chunk_in_row_[row] > chunk;
  return complete_[row * schedule_->steps.size() + step] != 0;
}

bool Progress::SlotIsFree(int64_t chunk, int slot) const {
  return chunk < kSlotDepth || IsComplete(chunk - kSlotDepth, reader_of_slot_[slot]);
}

}  // namespace farandole
