// Runner carries out schedules: it moves bytes over links, folds, and repeats the schedule over all chunks.
//
// It never blocks, sleeps or spins: Advance moves what can be moved now and returns. Pure parts take the decisions: the
// schedule says what is moved or folded, and partition.h says where, in which order, and when a step may run.
//
// A Runner is made once per (schedule, links) and started for every operation; between equal or smaller operations it
// allocates nothing. Runners over the same links take turns: all ranks start them in the same order, each after the one
// before is done.
//
// An operation is one plan (Start), or rounds whose plans come one after the other (StartRounds, Supply). A round is
// one chunk of the schedule, so rounds overlap as chunks do: while the last blocks of one are on their way, those of
// later ones leave.
//
// Thread rule: one thread (the driver) at a time. It keeps FloatingPointScope (reduce/reduce.h) while it calls Advance.
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
#include "transport/link.h"

namespace farandole {

// A block in memory of its own. A null source reads as zeros, and what would be written to null data is dropped. So
// neither may occur in a schedule that passes on what it has written.
struct BlockMemory {
  const void* source = nullptr;
  void* data = nullptr;
  size_t size_bytes = 0;
};

// One operation. Everything is equal on all participants, except memory and the sizes of an alltoall's blocks.
//
// A block is read from the source until the schedule has written it to data, from then on in data. So the source is
// never written, and where a schedule writes every block, nothing needs to be copied beforehand.
struct RunPlan {
  const void* source = nullptr;  // null: data
  void* data = nullptr;
  int64_t element_count = 0;
  DType dtype = DType::kUint8;
  ReduceOp reduce = ReduceOp::kSum;  // not kAverage: an average is a sum with a scale
  Scale scale;                       // applied once to every element, where the schedule says
  // For blocks that differ in size or lie apart. If not empty, source, data and element_count are not used.
  std::vector<BlockMemory> blocks;
  size_t chunk_bytes = 0;  // 0: DefaultChunkBytes
};

class Runner {
 public:
  // `links` are indexed by participant; null where the schedule has no transfer, as for this participant itself.
  // `under_way` is the number of chunks or rounds under way at once, about; equal on all participants.
  // REQUIRES: *schedule and the links outlive this.
  Runner(const Schedule* schedule, std::vector<Link*> links, int under_way = kChunksUnderWay);

  // Begins an operation, and drops what was left of another one. REQUIRES: the plan's memory stays valid until done().
  void Start(const RunPlan& plan);

  // Begins an operation of so many rounds, of which at most `most_at_once` are supplied and not done at any time.
  // REQUIRES: equal numbers of rounds on all participants; most_at_once > ChunksBeforeLastPhase of the schedule.
  void StartRounds(int64_t rounds, int64_t most_at_once);
  // The next round. REQUIRES: no block is null; the plan's memory stays valid until the round is done.
  void Supply(RunPlan plan);
  // Rounds are done in their order.
  int64_t rounds_done() const { return progress_.chunks_done(); }

  // Moves what can be moved now. Sets *moved if it moved anything, and then calling again may move more; else leaves
  // *moved. An error is final: it comes from a link, or there is no memory for what Start asked for.
  Status Advance(bool* moved);

  // True before Start, too.
  bool done() const { return progress_.done(); }

  // Say what to poll a link's descriptor for after an Advance that moved nothing. Only these can bring the operation
  // on.
  bool WaitsToSend(int participant) const;
  bool WaitsToRecv(int participant) const;

 private:
  // Transfers with one peer in one direction.
  struct PeerQueue {
    int peer;
    bool sends;
    StepCursor cursor;
    size_t moved_bytes;  // of the current step
  };
  // A block of one chunk: where it is read until the schedule writes it, and where it is written.
  struct Memory {
    const char* source;
    char* data;
    size_t size_bytes;
  };

  struct FreeScratch {
    void operator()(char* memory) const;
  };
  using ScratchMemory = std::unique_ptr<char, FreeScratch>;

  struct Round {
    RunPlan plan;
    ChunkMap chunks;  // of one chunk, or none where there is nothing to move
    size_t slot_bytes = 0;
    // Kept from one operation to the next.
    ScratchMemory scratch;
    size_t scratch_bytes = 0;
  };

  PeerQueue MakeQueue(int peer, bool sends) const;
  void Restart(int64_t chunk_count);
  Status Transfer(bool sends, bool* moved);
  Status TransferQueue(PeerQueue* queue, bool* moved);
  void FoldReady(bool* moved);
  void Fold(int64_t chunk, int index);

  bool IsReady(const StepCursor& cursor) const {
    return !cursor.ended() && cursor.chunk() < supplied_ && progress_.Ready(cursor.chunk(), cursor.step());
  }
  // Null where the operation is one plan.
  const Round* RoundOf(int64_t chunk) const {
    return in_rounds_ ? &rounds_[static_cast<size_t>(chunk) % rounds_.size()] : nullptr;
  }
  const RunPlan& PlanOf(int64_t chunk) const { return in_rounds_ ? RoundOf(chunk)->plan : plan_; }
  bool Waits(int participant, bool sends) const;
  void Finish(StepCursor* cursor);
  Memory MemoryOf(int64_t chunk, const Step& step) const;
  // Returns where a step reads its block.
  const char* ReadFrom(const Memory& memory, int step) const {
    return reads_source_[static_cast<size_t>(step)] ? memory.source : memory.data;
  }
  char* SlotMemory(int64_t chunk, int slot) const;
  bool TouchesNull() const;
  void ReserveScratch();
  static bool Reserve(size_t size_bytes, ScratchMemory* memory, size_t* reserved_bytes);

  // Fixed for the runner's life.
  const Schedule* const schedule_;
  const std::vector<Link*> links_;
  const int under_way_;
  const std::vector<bool> reads_source_;  // by step: nothing before it writes its block

  // Of the current operation.
  RunPlan plan_;
  ChunkMap chunks_;
  int64_t supplied_ = 0;  // chunks whose memory is known
  bool in_rounds_ = false;
  std::vector<Round> rounds_;  // round t at t modulo their number
  size_t lacking_bytes_ = 0;   // of scratch, where there was no memory
  Progress progress_;
  std::vector<PeerQueue> queues_;
  StepCursor folds_;
  std::vector<const void*> operands_;
  size_t slot_bytes_ = 0;  // of one block
  char* zeros_ = nullptr;  // one block each, in scratch, where there are null blocks
  char* nowhere_ = nullptr;

  // Kept from one operation to the next.
  ScratchMemory scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace farandole
