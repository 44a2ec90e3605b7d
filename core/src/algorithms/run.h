// The one loop that carries out schedules: moves bytes over links, folds, and repeats the schedule over all chunks.
//
// It never blocks, sleeps or spins: Advance moves what can be moved now and returns. Where and when is decided by pure
// parts: the schedule says what, cut.h where, walk.h in which order and what may go.
//
// A Runner is made once per (schedule, links) and started for every operation; between equal or smaller operations it
// allocates nothing. Runners over the same links take turns: all ranks start them in the same order, the next after the
// last is done.
//
// Thread rule: one thread (the driver) at a time. It keeps FloatingPointScope (common/reduce.h) while it calls Advance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/cut.h"
#include "algorithms/schedule.h"
#include "algorithms/walk.h"
#include "common/reduce.h"
#include "common/status.h"
#include "common/types.h"
#include "transport/link.h"

namespace farandole {

// One operation. Everything but `data` is the same on all participants.
struct RunPlan {
  void* data = nullptr;
  int64_t element_count = 0;
  DType dtype = DType::kUint8;
  ReduceOp reduce = ReduceOp::kSum;  // not kAverage: an average is a sum with a scale
  Scale scale;                       // applied once to every element, where the schedule says
  // Allgather: where in `data` each participant's block lies, in bytes. If not empty, element_count and dtype play no
  // part.
  std::vector<Range> blocks;
  size_t chunk_bytes = 0;  // 0: DefaultChunkBytes
};

class Runner {
 public:
  // `links` are indexed by participant; null where the schedule has no transfer, as for this participant itself.
  // REQUIRES: *schedule and the links outlive this.
  Runner(const Schedule* schedule, std::vector<Link*> links);

  // Begins an operation; what was left of another one is forgotten. REQUIRES: plan.data stays valid until done().
  void Start(const RunPlan& plan);

  // Moves what can be moved now; sets *moved when that was anything (calling again at once may move more), else leaves
  // it. An error is final: a link's, or no memory for what Start asked for.
  Status Advance(bool* moved);

  // True before Start, too.
  bool done() const { return progress_.done(); }

  // What to poll a link's descriptor for after an Advance that moved nothing. Only these can bring the operation on.
  bool WaitsToSend(int participant) const;
  bool WaitsToRecv(int participant) const;

 private:
  // Transfers with one peer in one direction.
  struct Lane {
    int peer;
    bool sends;
    Walk walk;
    size_t moved_bytes;  // of the step whose turn it is
  };
  struct Memory {
    char* begin;
    size_t size_bytes;
  };

  Lane MakeLane(int peer, bool sends) const;
  Status Transfer(bool sends, bool* moved);
  Status TransferLane(Lane* lane, bool* moved);
  void FoldReady(bool* moved);
  void Fold(int64_t chunk, const Step& step);

  bool IsReady(const Walk& walk) const { return !walk.ended() && progress_.Ready(walk.chunk(), walk.step()); }
  bool Waits(int participant, bool sends) const;
  void Finish(Walk* walk);
  Memory BlockMemory(int64_t chunk, int block) const;
  char* SlotMemory(int64_t chunk, int slot) const;
  void ReserveScratch();

  struct FreeScratch {
    void operator()(char* memory) const;
  };

  // Constant.
  const Schedule* const schedule_;
  const std::vector<Link*> links_;

  // Of the operation.
  RunPlan plan_;
  Cut cut_;
  Progress progress_;
  std::vector<Lane> lanes_;
  Walk folds_;
  std::vector<const void*> operands_;
  size_t slot_bytes_ = 0;
  size_t needed_bytes_ = 0;  // of scratch

  // Kept from one operation to the next.
  std::unique_ptr<char, FreeScratch> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace farandole
