// A collective to perform, with its memory: what the engine hands to a backend. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "algorithms/plan.h"
#include "common/config.h"
#include "common/types.h"
#include "device/device.h"
#include "reduce/reduce.h"
#include "world/process_set.h"

namespace farandole {

// A piece of contiguous memory of one tensor. input and output may be the same in allreduce and broadcast; elsewhere
// they do not overlap, except that an allgather's input may lie at its place in the output. A rank that has joined
// takes part without memory: a null input reads as zeros, and what would go to a null output is dropped.
struct IoBuffer {
  const void* input = nullptr;
  void* output = nullptr;
  size_t size_bytes = 0;
  Device* device = nullptr;     // where the memory lies; null: on the host, or there is none
  Event ready_event = nullptr;  // on a device: after it the input is valid and the output may be written
};

// allreduce, broadcast: the buffers are one vector, in order (fused tensors); broadcast reads the root's inputs.
// allgather: buffers[0].input is this rank's part, buffers[0].output takes all parts in rank order.
// alltoall: buffers[0].input holds the parts for all positions, in order; buffers[0].output takes those of
//   all positions.
// reducescatter: buffers[0].input is the whole vector, buffers[0].output takes this rank's part of the reduction.
// barrier: no buffers.
struct Task {
  OpKind kind = OpKind::kAllreduce;
  const ProcessSet* set = nullptr;  // never null; this rank is in it. Valid until the task is done or aborted
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;  // never kAverage: an average is a sum with a divisor
  Scale scale;
  int root = 0;         // a position
  int backend = 0;      // the number of the backend that performs it, in the table of backends
  uint64_t number = 0;  // counts the set's tasks, from 1; 0: a step of another task
  std::vector<IoBuffer> buffers;
  std::vector<size_t> rank_bytes;  // allgather, reducescatter: the size of every position's part
  std::vector<size_t> send_bytes;  // alltoall: what this rank sends to every position
  std::vector<size_t> recv_bytes;  // alltoall: what it gets from every position

  // Returns the size of the buffers' inputs.
  size_t TotalBytes() const {
    return std::accumulate(buffers.begin(), buffers.end(), size_t{0},
                           [](size_t sum, const IoBuffer& buffer) { return sum + buffer.size_bytes; });
  }
  // Returns the size of this rank's result.
  size_t ResultBytes() const {
    if (!AllocatesOutput(kind)) return TotalBytes();
    if (TakesSplits(kind)) return std::accumulate(recv_bytes.begin(), recv_bytes.end(), size_t{0});
    return RowsDiffer(kind) ? std::accumulate(rank_bytes.begin(), rank_bytes.end(), size_t{0})
                            : rank_bytes[static_cast<size_t>(set->position)];
  }
};

// How every rank of the set runs the task.
Plan PlanOf(const Task& task, const Settings& settings);

// The rows of one tensor, whose result the core allocates, as all ranks reported them.
struct ReportedRows {
  const std::vector<int64_t>& counts;  // of all tensors, position by position, see Signature::CountsPerRank
  size_t tensors, index;               // the number of tensors, and this one among them
  int64_t mine;                        // of this rank's input
  size_t row_bytes;

  int64_t Of(size_t position) const { return counts[position * tensors + index]; }
};

// One function for each word in the last column of types.def: AllRows is in allgather.cc. It fills in the sizes of the
// task's parts, and returns the rows that this rank receives, which together are its result.
#define FRD_OP_KIND(enumerator, number, name, traits, moved, rows) \
  std::vector<int64_t> rows##Rows(const ReportedRows& reported, Task* task);
#include "common/types.def"

std::vector<int64_t> FindRows(const ReportedRows& reported, Task* task);  // by the one of its kind

// Copy size_bytes of one tensor, from `offset` on.
void ReadInput(const IoBuffer& buffer, size_t offset, size_t size_bytes, void* to);
void WriteOutput(const IoBuffer& buffer, size_t offset, size_t size_bytes, const void* from);

// Fused tensors as one vector, without packing them first: a range of it is copied straight between the tensors and
// staging. Where a tensor has no memory (a rank that has joined), zeros are read and nothing is written. A value that
// points at the buffers; any thread.
class IoVector {
 public:
  explicit IoVector(const std::vector<IoBuffer>* buffers);

  size_t size_bytes() const { return size_bytes_; }
  void ReadInput(size_t offset, size_t size_bytes, void* to) const;
  void WriteOutput(size_t offset, size_t size_bytes, const void* from) const;
  // Return the memory itself where the range lies in one tensor that has memory, else null.
  const void* Input(size_t offset, size_t size_bytes) const;
  void* Output(size_t offset, size_t size_bytes) const;

 private:
  size_t Find(size_t offset) const;
  template <typename Visit>
  void ForEachPiece(size_t offset, size_t size_bytes, Visit visit) const;

  const std::vector<IoBuffer>* buffers_;
  std::vector<size_t> begins_;
  size_t size_bytes_ = 0;
};

}  // namespace farandole
