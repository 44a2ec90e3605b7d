// Recursive halving and doubling: the bytes of a ring in 2 log2(n) hops, in order R (common/reduce.h).
//
// Among 2^k participants, at step s participants whose numbers differ in bit s exchange the halves of what they still
// have, and each folds the half it keeps, the lower participant's value first. After step s everybody has R of the
// 2^(s+1) participants around it, so after k steps R of all, each for its own blocks. Doubling goes the same way back:
//
//   4 participants, 4 blocks   0: 0123 -> 01 -> 0    1: 0123 -> 23 -> 2    2: 0123 -> 01 -> 1    3: 0123 -> 23 -> 3
//
// Any other number is cut to powers of two, the largest first (7 = 4 + 2 + 1), and R is nested in the same way:
// R(7) = R(4) + (R(2) + R(1)). So every section halves for itself, then the last hands its blocks to the one before it,
// which folds and hands on; the result comes back on the same way, and every section doubles for itself.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005
// (distance doubling and vector halving, binary blocks).
//
// Pure functions; any thread. REQUIRES: 0 <= me < participants.
#pragma once

#include "algorithms/schedule.h"

namespace farandole {

// As many blocks as the largest section has participants.
Schedule HalvingAllreduce(int participants, int me);

}  // namespace farandole
