// Pairwise exchange: every participant has something else for every other one, and nobody forwards.
//
//   step d    participant i sends to i + d and receives from i - d (modulo the number of participants)
//
// so at any time everybody sends to another receiver. All steps may be under way at once: which of them move is decided
// by the links. Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
// MPICH", 2005.
//
// Pure functions; any thread. REQUIRES everywhere: 0 <= me < participants.
#pragma once

#include "algorithms/schedule.h"

namespace farandole {

// Block j is what goes to participant j, block participants + j what comes from it. Blocks differ in size, and a
// participant knows those of its own only; that is enough, because no step waits for another one.
Schedule PairwiseAlltoall(int participants, int me);

// One block per participant; block j is folded by participant j in order R (reduce/reduce.h). The others' blocks are
// only read.
Schedule PairwiseReduceScatter(int participants, int me);

}  // namespace farandole
