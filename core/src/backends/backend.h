// Something that can perform a collective among the ranks of a process set.
//
// The engine hands over one piece of work after another, in the same order on every rank, and polls until it is done.
// Nothing here blocks: Poll moves what can be moved and returns. The driver alone calls.
#pragma once

#include <cstddef>
#include <vector>

#include "common/reduce.h"
#include "common/status.h"
#include "common/types.h"
#include "world/process_set.h"

namespace farandole {

// A piece of contiguous memory of one tensor. input and output may be the same in allreduce and broadcast; elsewhere
// they do not overlap, except that an allgather's input may lie at its place in the output. A rank that has joined
// takes part without memory: a null input reads as zeros, what would go to a null output is dropped.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  size_t size_bytes = 0;
};

// allreduce, broadcast: the segments are one vector, in order (fused tensors); broadcast reads the root's inputs.
// allgather: segments[0].input is this rank's part, segments[0].output takes all parts in rank order.
// alltoall: segments[0].input holds the parts for all positions, in order; segments[0].output takes those of
//   all positions.
// reducescatter: segments[0].input is the whole vector, segments[0].output takes this rank's part of the reduction.
// barrier: no segments.
struct Work {
  OpKind kind = OpKind::kAllreduce;
  const ProcessSet* set = nullptr;  // never null; this rank is in it. Valid until the work is done or aborted
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;  // never kAverage: an average is a sum with a divisor
  Scale scale;
  int root = 0;  // a position
  std::vector<Segment> segments;
  std::vector<size_t> rank_bytes;  // allgather, reducescatter: the size of every position's part
  std::vector<size_t> send_bytes;  // alltoall: what this rank sends to every position
  std::vector<size_t> recv_bytes;  // alltoall: what it gets from every position

  size_t TotalBytes() const;  // of the segments' inputs
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual bool Supports(const Work& work) const = 0;
  // REQUIRES: Supports(work), the work before is done. `work` stays valid until it is done or aborted.
  virtual Status Start(const Work* work) = 0;
  // *moved: something happened. *done: the outputs are complete and the inputs no longer needed.
  virtual Status Poll(bool* moved, bool* done) = 0;
  // Ranks that the work at hand waits for, as far as this rank can tell; for reports.
  virtual std::vector<int> Laggards() const = 0;
  // Drops the work at hand; its memory is not touched any more on return.
  virtual void Abort() = 0;
  // The set is gone; what was kept for it may go. REQUIRES: no work of it is under way.
  virtual void Forget(int set_id) = 0;
};

}  // namespace farandole
