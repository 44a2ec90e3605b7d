// Partition and Parts spread vectors over members and nodes. Pure; values, any thread.
//
// Partition: one vector, as one member sees it.
//
//   chunk    [ shard 0 | shard 1 | shard 2 ]    K shards, cut by BlockRange
//   node 0    m0        m1        m2           every shard is combined in each node by its owner, and exchanged
//   node 1    m0        m0        m1           between the owners of the nodes
//
// Parts: the parts of all positions, of any sizes, in rounds of at most one slot. Every part is cut into as many pieces
// as there are rounds, so all parts begin and end together, however unequal they are:
//
//   vector    [ part 0 | part 1 | part 2 ]                          by position
//   round t   [ piece t of part 0 | of part 2 || of part 1 ]        node by node: { 0, 2 } and { 1 } here
//
// The pieces of a round lie one behind the other. Those of one node, its region, form one range, which can be cut into
// shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"
#include "world/layout.h"

namespace farandole {

struct Partition {
  const Layout* layout = nullptr;
  int node = 0;
  int member = 0;

  int node_count() const { return layout->node_count(); }
  const std::vector<int>& ranks() const { return layout->nodes[static_cast<size_t>(node)]; }
  int member_count() const { return static_cast<int>(ranks().size()); }
  // The number of ranks in the nodes before this one.
  size_t ranks_before() const;

  // Small vectors of several nodes have one shard, owned by the leaders, since smaller shards are not worth their
  // messages.
  int ShardCount(size_t total_bytes) const {
    constexpr size_t kOneShardBytes = 32 << 10;
    return node_count() > 1 && total_bytes <= kOneShardBytes ? 1 : layout->shard_count();
  }

  // Elements that `of_member` of this node owns when element_count elements are cut into shard_count shards.
  Range OwnedBy(int of_member, int shard_count, int64_t element_count, size_t element_bytes) const {
    const ShardRange shards = ShardsOf(of_member, member_count(), shard_count);
    if (shards.begin == shards.end) return {};
    return {BlockRange(element_count, element_bytes, shards.begin, shard_count).begin,
            BlockRange(element_count, element_bytes, shards.end - 1, shard_count).end};
  }
};

// A shard of a region, both in bytes.
Range ShardOf(Range region, size_t element_bytes, int shard, int shard_count);

// The offset of each part when all parts lie one behind the other.
std::vector<size_t> PartOffsets(const std::vector<size_t>& part_bytes);

class Parts {
 public:
  struct Piece {
    int position;
    size_t vector_offset;  // in the vector of all parts
    size_t part_offset;    // in its part
    size_t round_offset;
    size_t size_bytes;
  };

  // With more positions a slot would lack room for a cache line of each.
  static constexpr int kMaxPositions = 2048;

  // The rounds in which one slot holds a piece of each part.
  static uint64_t RoundsInOneSlot(const std::vector<size_t>& part_bytes, size_t slot_bytes);

  // REQUIRES: part_bytes are multiples of element_bytes; at most kMaxPositions.
  Parts(const Layout& layout, const std::vector<size_t>& part_bytes, size_t element_bytes, uint64_t rounds);

  size_t total_bytes() const { return total_bytes_; }
  // The pieces of round t, in the order in which they lie in the round.
  std::vector<Piece> PiecesOf(uint64_t t) const;
  // The region of each node, in bytes of the round.
  std::vector<Range> RegionsOf(const std::vector<Piece>& pieces) const;

  // The part of a piece that lies in a range of the round; may be empty.
  static Piece Within(const Piece& piece, Range bytes_of_round);

 private:
  const Layout* layout_;
  std::vector<size_t> part_bytes_;
  std::vector<size_t> offsets_;
  size_t element_bytes_;
  size_t total_bytes_ = 0;
  uint64_t rounds_ = 0;
};

// ---- chunks
//
// A schedule is repeated over chunks. Chunk t is the t-th window of each of its blocks; short blocks end earlier:
//
//   data     [ block 0: window 0 | window 1 ][ block 1: window 0 ][ block 2: window 0 | window 1 ]
//
// StepCursor says in which order one participant takes the steps of a schedule over all chunks. It only computes;
// collectives/runner.h moves the bytes.
//
// StepCursor. Each step belongs to a queue: sends to one peer, receives from one peer, or reductions. Within a queue
// the order is strict; queues wait for each other only through Progress. All participants order by (tick, older chunk
// first, index in the schedule), where tick = chunk + phase * lag (drawn in schedule.h). So the two ends of a link
// agree without a message. Every step waits only for earlier steps of that order, so a schedule that cannot deadlock in
// one chunk cannot deadlock in many.
//
// The runner of one collective owns its cursors and a Progress; one thread at a time.

// The bytes of each block in one chunk: 256 KB, but no more than 1 MB in all, so that sent data are still in the cache
// when they are received and reduced (docs/benchmarks/hosts.md#chunks-over-loopback).
size_t DefaultWindowBytes(int block_count);
// Of the same number of chunks, but so that the last one is not much shorter than the others. REQUIRES: all
// participants have blocks of these sizes.
size_t EvenWindowBytes(size_t block_bytes, size_t max_bytes);

// The chunks that are under way at once, about. A network with delay needs four, and more leave the cache. Rounds
// (collectives/staging.h) are smaller chunks, so more of them are under way
// (docs/benchmarks/hosts.md#chunks-over-loopback).
inline constexpr int kChunksUnderWay = 4;
inline constexpr int kRoundsUnderWay = 8;

// The number of chunks between two phases of one chunk.
int LagOf(int phase_count, int under_way = kChunksUnderWay);

// The number of later chunks whose first phase comes before a chunk's last phase.
inline int64_t ChunksBeforeLastPhase(int phase_count, int under_way) {
  return int64_t{LagOf(phase_count, under_way)} * (phase_count - 1);
}

// The steps of one queue, over all chunks.
class StepCursor {
 public:
  // `steps` are indices into `schedule`, ascending.
  StepCursor(const Schedule& schedule, const std::vector<int>& steps, int under_way = kChunksUnderWay);

  void Restart(int64_t chunk_count);

  // The next step. REQUIRES: not ended().
  int64_t chunk() const { return tick_ - stops_[at_].delay; }
  int step() const { return stops_[at_].step; }

  bool ended() const { return tick_ > last_tick_; }
  void Next();  // REQUIRES: not ended()

 private:
  struct Stop {
    int step;
    int64_t delay;  // ticks after the chunk's first tick
  };
  void SkipToChunk();

  std::vector<Stop> stops_;
  int64_t chunk_count_ = 0;
  int64_t tick_ = 0;
  int64_t last_tick_ = -1;
  size_t at_ = 0;
};

// The complete steps, in a window of chunks that moves on when its oldest chunks finish.
class Progress {
 public:
  // A scratch slot has separate room for this many chunks.
  static constexpr int kSlotDepth = 4;

  // REQUIRES: `schedule` outlives this.
  explicit Progress(const Schedule* schedule, int under_way = kChunksUnderWay);

  void Restart(int64_t chunk_count);

  // Returns whether all steps that `step` of `chunk` needs are complete: its `after`, and for a receive into a slot the
  // reduction that read the slot's previous contents.
  bool Ready(int64_t chunk, int step) const;
  void Complete(int64_t chunk, int step);  // REQUIRES: Ready, and not complete yet
  bool done() const { return chunks_left_ == 0; }
  // A chunk is complete before the next one is, since each queue takes its steps in the order of chunks.
  int64_t chunks_done() const { return chunk_count_ - chunks_left_; }

 private:
  size_t Row(int64_t chunk) const { return static_cast<size_t>(chunk % window_); }
  bool IsComplete(int64_t chunk, int step) const;
  bool SlotIsFree(int64_t chunk, int slot) const;

  const Schedule* const schedule_;
  const int64_t window_;
  std::vector<int> reader_of_slot_;    // the last reduction that reads the slot
  std::vector<int64_t> chunk_in_row_;  // row r of the window holds chunk r, then r + window, ...
  std::vector<size_t> left_in_row_;    // steps of that chunk not complete yet
  std::vector<uint8_t> complete_;      // row major: row, step
  int64_t chunk_count_ = 0;
  int64_t chunks_left_ = 0;
};

}  // namespace farandole
