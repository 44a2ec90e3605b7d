// Runner carries out schedules: it posts transfers, reduces, and repeats the schedule over all chunks.
//
// It never blocks, sleeps or spins. A step of the schedule is one post (transport.h), which is made as soon as the step
// may run; when it is complete, so is the step. Pure parts decide: the schedule says what is moved or reduced, and
// partition.h says where, in which order, and when a step may run.
//
// A Runner is made once per (schedule, ranks) and started for every operation; between equal or smaller operations it
// allocates nothing. Runners between the same ranks take turns: all ranks start them in the same order, each after the
// one before is done.
//
// An operation is one plan (Start), or rounds whose plans come one after the other (StartRounds, Supply). A round is
// one chunk of the schedule, so rounds overlap as chunks do: while the last blocks of one are on their way, those of
// later ones leave.
//
// Several runners share a transport: Post of each, PollAll, ReduceReady of each, until all are done.
//
// Thread rule: one thread (the driver) at a time. It keeps FloatingPointScope (reduce/reduce.h) meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/partition.h"
#include "algorithms/schedule.h"
#include "common/status.h"
#include "common/types.h"
#include "reduce/reduce.h"
#include "transport/transport.h"

namespace farandole {

// Memory that is kept from one operation to the next. Blocks in it may begin at cache lines.
class Scratch {
 public:
  // Returns null when there is no memory. The former contents are lost.
  std::byte* Get(size_t size_bytes);
  // Gives large memory back.
  void Release();

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_bytes_ = 0;
};

// A block in memory of its own. A null source reads as zeros, and what would be written to null data is dropped. So
// neither may occur in a schedule that passes on what it has written.
struct BlockMemory {
  const void* source = nullptr;
  void* data = nullptr;
  size_t size_bytes = 0;
};

// One operation. Everything is equal on all participants, except memory and the sizes of an alltoall's blocks.
//
// A block is read from its source until the schedule has written it to data, from then on in data. So the source is
// never written, and where a schedule writes every block, nothing needs to be copied beforehand.
struct RunPlan {
  std::vector<BlockMemory> blocks;
  DType dtype = DType::kUint8;
  ReduceOp reduce = ReduceOp::kSum;  // not kAverage: an average is a sum with a scale
  Scale scale;                       // applied once to every element, where the schedule says
  // Of each block, in one chunk. 0: chosen by the longest block. REQUIRES: not 0 where blocks are not equally long on
  // all participants.
  size_t window_bytes = 0;
};

// Adds a range of memory that is reduced or filled in place.
inline void AppendBlock(std::byte* memory, Range bytes, RunPlan* plan) {
  plan->blocks.push_back({memory + bytes.begin, memory + bytes.begin, static_cast<size_t>(bytes.size())});
}
// Cuts one vector into the blocks of a schedule.
std::vector<BlockMemory> CutBlocks(const void* source, void* data, int64_t element_count, size_t element_bytes,
                                   int block_count);

class Runner {
 public:
  // `ranks` are indexed by participant. `under_way` is the number of chunks or rounds under way at once, about; equal
  // on all participants. REQUIRES: *schedule and *transport outlive this; the transport is quiesced before this ends
  // while it is not done, or its operation is cancelled.
  Runner(const Schedule* schedule, Transport* transport, std::vector<int> ranks, int under_way = kChunksUnderWay);
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Begins an operation, whose messages have this tag. REQUIRES: done(); the plan's memory stays valid until done().
  void Start(RunPlan plan, const MessageTag& tag = {});

  // Begins an operation of so many rounds, of which at most `max_at_once` are supplied and not done at any time.
  // REQUIRES: equal numbers of rounds on all participants; max_at_once > ChunksBeforeLastPhase of the schedule.
  void StartRounds(int64_t rounds, int64_t max_at_once, const MessageTag& tag = {});
  // The next round. REQUIRES: no block is null; the plan's memory stays valid until the round is done.
  void Supply(RunPlan plan);
  // Rounds are done in their order.
  int64_t rounds_done() const { return progress_.chunks_done(); }

  // Posts the steps that may run. An error is final: it comes from the transport, or there was no memory for partials.
  Status Post(bool* moved);
  // Polls the transport for all its runners. Returns whether it moved anything. *completions: kept for its memory.
  static bool PollAll(Transport* transport, std::vector<Transport::Completion>* completions);
  // Reduces what has arrived.
  void ReduceReady(bool* moved);

  // True before Start, too.
  bool done() const { return progress_.done(); }

  // True when data of the participant are awaited.
  bool WaitsToRecv(int participant) const;
  // The operation is cancelled in the transport, and done.
  void Drop() { Restart(0); }

 private:
  // Transfers with one peer in one direction. Its address is the context of its posts, which end in their order.
  struct PeerQueue {
    Runner* runner;
    int peer;
    bool sends;
    StepCursor next;     // to post
    StepCursor last;     // posted first of those that are not complete
    int64_t posted = 0;  // steps that are not complete
    uint32_t part = 0;   // messages of this operation so far
  };
  // An operation, or one round of it, which is one chunk.
  struct Round {
    RunPlan plan;
    size_t slot_bytes = 0;  // of one block
    Scratch scratch;        // kept from one operation to the next
    char* slots = nullptr;
    char* zeros = nullptr;  // one block each, where there are null blocks
    char* discarded = nullptr;
  };

  void Restart(int64_t chunk_count);
  int64_t Prepare(Round* round, RunPlan plan);
  bool FinishEmpty(PeerQueue* queue);
  void Finish(StepCursor* cursor);

  bool IsReady(const StepCursor& cursor) const {
    return !cursor.ended() && cursor.chunk() < supplied_ && progress_.Ready(cursor.chunk(), cursor.step());
  }
  const Round& RoundOf(int64_t chunk) const { return rounds_[in_rounds_ ? ToIndex(chunk) % rounds_.size() : 0]; }
  // The block of a step, in one chunk. It has the round's `zeros` and `discarded` in place of null.
  BlockMemory MemoryOf(int64_t chunk, const Step& step) const;
  // Returns where a step reads its block.
  const void* ReadFrom(const BlockMemory& memory, int step) const {
    return reads_source_[ToIndex(step)] ? memory.source : memory.data;
  }
  char* SlotMemory(int64_t chunk, int slot) const;
  bool TouchesNull(const RunPlan& plan) const;
  static size_t ToIndex(int64_t number) { return static_cast<size_t>(number); }

  // Fixed for the runner's life.
  const Schedule* const schedule_;
  Transport* const transport_;
  const std::vector<int> ranks_;
  const std::vector<bool> reads_source_;  // by step: nothing before it writes its block

  // Of the current operation.
  MessageTag tag_;
  Status failed_;           // final
  bool in_rounds_ = false;  // round t is at t modulo their number; else the only one is the operation
  std::vector<Round> rounds_;
  int64_t supplied_ = 0;  // chunks whose memory is known
  Progress progress_;
  std::vector<PeerQueue> queues_;
  StepCursor reductions_;
  std::vector<const void*> operands_;
};

}  // namespace farandole
