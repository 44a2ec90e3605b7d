// An allreduce of cells (transport/shm/cells.h): everybody folds everything.
//
// It moves n times the bytes that a reduce-scatter would, but needs one wait: for small payloads that is all that
// counts. Any thread.
#pragma once

#include <cstddef>

#include "reduce/reduce.h"
#include "transport/shm/cells.h"

namespace farandole {

// Folds all members' segments in order R into the outputs. Member `reader`, unless it is -1, reads its own inputs where
// they are instead of what it has put: lines that others have read may have gone there (64 KB take 2.1 us, not 5.1).
// REQUIRES: AllHavePut; the reader's inputs are as they were put; an IEEE environment as FloatingPointScope makes it.
void FoldCells(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* segments, size_t segment_count,
               int reader = -1);

}  // namespace farandole
