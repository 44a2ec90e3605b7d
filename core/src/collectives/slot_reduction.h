// The reduction of small operations, whose inputs lie in buffer slots in shared memory (transport/shm/slots.h).
//
//   one phase    every member reduces all slots by itself (ReduceSlots): n times the bytes of a reduce-scatter, but
//                only one wait, which is all that matters for the smallest payloads
//   two phases   each member reduces its share for all (ReduceShare), and copies the others' shares (CopyShares)
//
// Both reduce in the fixed tree order. A member takes its own inputs from the user's memory rather than from its slot,
// since other cores have read that.
//
// Thread safety: one thread at a time for one member of one buffer. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/plan.h"
#include "reduce/reduce.h"
#include "transport/shm/slots.h"

namespace farandole {

// In place of a member: all inputs are taken from the slots.
inline constexpr int kNoMember = -1;

// The reduction of one tensor in one phase, with its kernel and operands chosen. That takes longer than to reduce a few
// bytes, so a caller does it while it waits for the others.
class TensorReduction {
 public:
  // offset: of the tensor in the payload. own: as in ReduceSlots. REQUIRES: as ReduceSlots, except for AllHaveWritten;
  // the tensor has an output.
  TensorReduction(const SlotBuffer& slots, ReduceOp reduce, Scale scale, const SlotTensor& tensor, size_t offset,
                  int own);
  TensorReduction(const TensorReduction&) = delete;  // call_ points at its own members
  void Run() const;                                  // REQUIRES: AllHaveWritten

 private:
  // Every instruction set reduces this many bytes in whole steps. Behind a shorter tensor in the line of the sequence
  // number lies another tensor or the bytes of a former use. The kernel reads past its end and writes to a temporary
  // buffer, and the results for what lies behind are dropped. That is faster than a loop of the exact length.
  static constexpr size_t kStepBytes = 32;

  const SlotTensor& tensor_;
  const void* inputs_[kMaxSlotMembers];
  alignas(kStepBytes) std::byte own_[kStepBytes];
  alignas(kStepBytes) std::byte result_[kStepBytes];
  ReduceCall call_;
  ReduceFunction reduce_;
  const std::byte* prefetched_ = nullptr;  // the other member's payload
};

// The functions below REQUIRE: at least two members; the inputs are as they were written, and only a member that drops
// the result has none; the floating-point environment of FloatingPointScope.

// Reduces all members' tensors into the outputs. own: the member whose inputs are still in the user's memory, or
// kNoMember. REQUIRES: AllHaveWritten.
void ReduceSlots(const SlotBuffer& slots, ReduceOp reduce, Scale scale, const SlotTensor* tensors, size_t tensor_count,
                 int own);

// Reduces this member's share of each tensor, into the output and for the others. REQUIRES: AllHaveWritten; all members
// have written with WriteForOthers.
void ReduceShare(const SlotBuffer& slots, ReduceOp reduce, Scale scale, const SlotTensor* tensors, size_t tensor_count,
                 uint64_t generation);
// Copies the others' shares into the outputs. REQUIRES: AllHaveReduced.
void CopyShares(const SlotBuffer& slots, const SlotTensor* tensors, size_t tensor_count);

}  // namespace farandole
