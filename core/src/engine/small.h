// Operations that need no back end: small allreduces, which every member copies into the id's span when it submits so
// that the last to come can fold them for all, and everything in a world of one rank.
//
//   span half   [ member 0 | member 1 | ... | result ]     pieces SpanStride(signature) apart, tensors packed one behind the other
//
// Thread rule: the span's own (a piece belongs to its member until it arrives, the result to the last arriver).
#pragma once

#include <cstddef>

#include "common/reduce.h"
#include "engine/operation.h"

namespace farandole {

// The scale and reduction of an allreduce as the folds want them: an average is a sum with a divisor, and a negative
// prescale turns minima into maxima.
struct Reduction {
  ReduceOp reduce = ReduceOp::kSum;
  Scale scale;
};
Reduction ReductionOf(const Request& request, int world_size);

void WriteToSpan(const Operation& operation, std::byte* span, int member);
void FoldSpan(const Operation& operation, std::byte* span, int member_count);
void ReadFromSpan(const Operation& operation, const std::byte* span, int member_count);

// The whole collective for a world of one rank: its result is its own contribution, scaled. kInternal when memory is
// short.
Status PerformAlone(Operation* operation);

// Memory for the result of an allgather of tensor `index`. kInternal when memory is short.
Status AllocateOutput(Operation* operation, size_t index, int64_t rows);

}  // namespace farandole
