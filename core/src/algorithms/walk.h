// In which order one participant takes the steps of a schedule over all chunks, and which of them may go now.
// Arithmetic only: run.h moves the bytes.
//
// The steps are dealt to lanes: sends to one peer, receives from one peer, folds. Within a lane the order is strict;
// lanes wait for each other only through Progress. All participants order by (tick, older chunk first, index in the
// schedule), where tick = chunk + phase * lag (drawn in schedule.h), so the two ends of a link agree without a word,
// and every wait is for something earlier in that order, so a schedule that cannot deadlock in one chunk cannot
// deadlock in many.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"

namespace farandole {

// Chunks between two phases of one chunk, so that about four are under way. On loopback two to four took the same time
// (16 MB: 2.96 - 3.16 ms), eight more (3.5 ms, out of the cache); a network with delay wants the four.
int LagOf(int phase_count);

// The steps of one lane, over all chunks.
class Walk {
 public:
  // `steps` are indices into `schedule`, ascending.
  Walk(const Schedule& schedule, const std::vector<int>& steps);

  void Restart(int64_t chunk_count);

  // The step whose turn it is. REQUIRES: not ended().
  int64_t chunk() const { return tick_ - stops_[at_].delay; }
  int step() const { return stops_[at_].step; }

  bool ended() const { return tick_ > last_tick_; }
  void Next();  // REQUIRES: not ended()

 private:
  struct Stop {
    int step;
    int64_t delay;  // ticks after the beginning of the chunk
  };
  void SkipToChunk();

  std::vector<Stop> stops_;
  int64_t chunk_count_ = 0;
  int64_t tick_ = 0;
  int64_t last_tick_ = -1;
  size_t at_ = 0;
};

// Which steps are complete, in a window of chunks that moves on as its oldest chunks finish.
class Progress {
 public:
  // Chunks for which a scratch slot has room of its own.
  static constexpr int kSlotDepth = 4;

  // REQUIRES: `schedule` outlives this.
  explicit Progress(const Schedule* schedule);

  void Restart(int64_t chunk_count);

  // True when everything that `step` of `chunk` needs is complete: its `after`, and for a receive into a slot the
  // fold that read the slot's previous contents.
  bool Ready(int64_t chunk, int step) const;
  void Complete(int64_t chunk, int step);  // REQUIRES: Ready, and not complete yet
  bool done() const { return chunks_left_ == 0; }

 private:
  size_t Row(int64_t chunk) const { return static_cast<size_t>(chunk % window_); }
  bool IsComplete(int64_t chunk, int step) const;
  bool SlotIsFree(int64_t chunk, int slot) const;

  const Schedule* const schedule_;
  const int64_t window_;
  std::vector<int> reader_of_slot_;    // the last fold that reads the slot
  std::vector<int64_t> chunk_in_row_;  // row r of the window holds chunk r, then r + window, ...
  std::vector<size_t> left_in_row_;    // steps of that chunk not complete yet
  std::vector<uint8_t> complete_;      // row major: row, step
  int64_t chunks_left_ = 0;
};

}  // namespace farandole
