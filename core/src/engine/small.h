// Operations that need no back end: small ones, which every member puts where all see them and folds by itself
// (transport/shm/cells.h), and everything in a world or a process set of one rank.
//
// Thread rule: PutSmall and FoldSmall under the table's mutex, or, where the plan is large, between the negotiation's
// Submit or TakeReady and its Release; the others work on what is the caller's.
#pragma once

#include <cstddef>

#include "engine/operation.h"
#include "reduce/reduce.h"

namespace farandole {

// The scale and reduction of an allreduce or reducescatter as the folds want them: an average is a sum with a divisor,
// and a negative prescale turns minima into maxima.
struct Reduction {
  ReduceOp reduce = ReduceOp::kSum;
  Scale scale;
};
Reduction ReductionOf(const RequestFields& request, int set_size);

// REQUIRES: the plan has cells.
void PutSmall(Operation* operation, bool wants_bell);
void FoldSmall(Operation* operation);  // REQUIRES: all have put

// The whole collective for one rank alone: its result is its own contribution, scaled. kInternal when memory is short.
Status PerformAlone(Operation* operation);

// Memory for the result of tensor `index`, with so many rows. kInternal when memory is short.
Status AllocateOutput(Operation* operation, size_t index, int64_t rows);

// A result that is a list of numbers (a scalar when `scalar`).
Output NumbersOutput(const std::vector<int64_t>& numbers, bool scalar);

}  // namespace farandole
