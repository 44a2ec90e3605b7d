// Where the blocks of every chunk lie in the data, and in which order one participant takes the steps of a schedule
// over all chunks. Arithmetic only: collectives/runner.h moves the bytes.
//
// ChunkMap. Elements (reductions, broadcasts) are cut to chunks, and every chunk to blocks of nearly equal size:
//
//   data     [ chunk 0: block 0 | block 1 | block 2 ][ chunk 1: block 0 | block 1 | block 2 ]
//
// Given blocks (allgather, where every participant brings its own size) keep their places, and chunk t is the t-th
// window of each of them; short blocks run out earlier:
//
//   data     [ block 0: window 0 | window 1 ][ block 1: window 0 ][ block 2: window 0 | window 1 ]
//
// StepCursor. The steps are dealt to queues: sends to one peer, receives from one peer, folds. Within a queue the order
// is strict; queues wait for each other only through Progress. All participants order by (tick, older chunk first,
// index in the schedule), where tick = chunk + phase * lag (drawn in schedule.h). So the two ends of a link agree
// without a message, and every wait is for something earlier in that order: a schedule that cannot deadlock in one
// chunk cannot deadlock in many.
//
// The runner of one collective owns a map, its cursors and a Progress; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"

namespace farandole {

// Blocks of 256 KB, but no more than 1 MB in all: what is sent is still in the cache when it is received and folded.
// Two participants over loopback TCP, 16 MB, blocks of 128 | 256 | 512 KB | 1 MB: 3.27 | 3.14 | 3.2 - 3.5 | 5.0 - 6.0
// ms; 1 MB, blocks of 64 | 128 | 256 | 512 KB: 184 | 151 | 136 | 124 - 268 us.
size_t DefaultChunkBytes(int block_count);

class ChunkMap {
 public:
  ChunkMap() = default;  // no chunks

  // `chunk_bytes` is the most bytes of one chunk over all its blocks, except that a block gets no less than 64; 0
  // stands for DefaultChunkBytes.
  static ChunkMap OfElements(int64_t element_count, size_t element_bytes, int block_count, size_t chunk_bytes);

  // `blocks` are ranges of bytes.
  static ChunkMap OfBlocks(std::vector<Range> blocks, size_t chunk_bytes);

  int64_t chunk_count() const { return chunk_count_; }
  size_t largest_block_bytes() const { return largest_block_bytes_; }
  Range Bytes(int64_t chunk, int block) const;  // may be empty

 private:
  int64_t chunk_count_ = 0;
  size_t largest_block_bytes_ = 0;
  // Elements.
  int64_t element_count_ = 0;
  int64_t element_bytes_ = 1;
  int block_count_ = 1;
  int64_t chunk_elements_ = 0;
  // Given blocks; empty for elements.
  std::vector<Range> blocks_;
  int64_t window_bytes_ = 0;
};

// Chunks between two phases of one chunk, so that about four are under way. On loopback two to four took the same time
// (16 MB: 2.96 - 3.16 ms), eight more (3.5 ms, out of the cache); a network with delay wants the four.
int LagOf(int phase_count);

// The steps of one queue, over all chunks.
class StepCursor {
 public:
  // `steps` are indices into `schedule`, ascending.
  StepCursor(const Schedule& schedule, const std::vector<int>& steps);

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
