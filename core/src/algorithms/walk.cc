#include "algorithms/walk.h"

#include <algorithm>

namespace farandole {
namespace {

constexpr int kChunksUnderWay = 4;

// One chunk in every state of the pipeline, and a few more so that a slow peer does not stop the others at once.
int64_t WindowOf(int phase_count) { return int64_t{LagOf(phase_count)} * (phase_count - 1) + kChunksUnderWay; }

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

int LagOf(int phase_count) {
  const int waits = std::max(1, phase_count - 1);
  return (kChunksUnderWay + waits - 1) / waits;
}

Walk::Walk(const Schedule& schedule, const std::vector<int>& steps) {
  const int64_t lag = LagOf(schedule.phase_count);
  for (int step : steps) stops_.push_back({step, schedule.steps[step].phase * lag});
  std::stable_sort(stops_.begin(), stops_.end(), [](const Stop& a, const Stop& b) { return a.delay > b.delay; });
}

void Walk::Restart(int64_t chunk_count) {
  chunk_count_ = chunk_count;
  tick_ = 0;
  at_ = 0;
  last_tick_ = stops_.empty() || chunk_count == 0 ? -1 : chunk_count - 1 + stops_.front().delay;
  SkipToChunk();
}

void Walk::Next() {
  ++at_;
  SkipToChunk();
}

// At the beginning and at the end some stops belong to chunks that do not exist.
void Walk::SkipToChunk() {
  for (; !ended(); ++tick_, at_ = 0) {
    for (; at_ < stops_.size(); ++at_) {
      if (chunk() >= 0 && chunk() < chunk_count_) return;
    }
  }
}

Progress::Progress(const Schedule* schedule)
    : schedule_(schedule),
      window_(WindowOf(schedule->phase_count)),
      reader_of_slot_(ReadersOfSlots(*schedule)),
      chunk_in_row_(window_),
      left_in_row_(window_),
      complete_(window_ * schedule->steps.size()) {}

void Progress::Restart(int64_t chunk_count) {
  // A participant without steps (a broadcast to itself) has nothing to wait for.
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
