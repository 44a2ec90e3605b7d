// The reduction of small operations: every member writes its input to a buffer slot in shared memory, and reduces all
// slots by itself (transport/shm/cells.h). This moves n times the bytes of a reduce-scatter, but has only one wait,
// which is all that matters for small payloads.
//
// Thread safety: one thread at a time for one member of one buffer. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/plan.h"
#include "reduce/reduce.h"
#include "transport/shm/cells.h"

namespace farandole {

// The member that reduces.
struct CellReader {
  int member = 0;
  uint64_t stamp = 0;        // sequence number of the operation
  int pauses = 0;            // for a thread in a blocking call; 0: do not wait for the peer's half
  bool half_folded = false;  // it has reduced its own half in an earlier call
};

// The reduction of one tensor, with its kernel and operands chosen. That takes longer than to reduce a few bytes, so a
// caller does it while it waits for the others.
class TensorFold {
 public:
  // offset: of the tensor in the payload. REQUIRES: as FoldCells, except for AllHavePut; the tensor has an output.
  TensorFold(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor& tensor, size_t offset,
             const CellReader* reader);
  TensorFold(const TensorFold&) = delete;  // call_ points at its own members
  void Run() const;                        // REQUIRES: AllHavePut

 private:
  // Every instruction set reduces this many bytes in whole steps. A shorter tensor in the line of the sequence number
  // is followed by zeros or another tensor, so the kernel may read past its end and write to a temporary buffer. That
  // is faster than a loop of the exact length.
  static constexpr size_t kStepBytes = 32;

  const CellTensor& tensor_;
  const void* inputs_[kMostCellMembers];
  alignas(kStepBytes) std::byte own_[kStepBytes];
  alignas(kStepBytes) std::byte result_[kStepBytes];
  FoldCall call_;
  FoldFunction fold_;
  const std::byte* prefetched_ = nullptr;  // the other member's payload
};

// Reduces all members' tensors in the fixed tree order into the outputs. A reader takes its own inputs from the user's
// memory rather than from its slot, since other cores have read that. One of two readers may overwrite the half that it
// reduces for both. Returns false if the peer has written only half and still has to reduce its own; then the reader
// has reduced its half.
// REQUIRES: at least two members; AllHavePut; the reader's inputs are as they were written, and only a member that
// drops the result has none; the floating-point environment of FloatingPointScope.
bool FoldCells(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* tensors, size_t tensor_count,
               const CellReader* reader = nullptr);

}  // namespace farandole
