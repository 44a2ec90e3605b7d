// Direct exchange: every participant talks to every other, nobody forwards.
//
//   DirectAllreduce, three participants, block j owned by j:
//
//     phase 0                               fold by the owner                phase 1
//     0 : sends block 1 -> 1, block 2 -> 2     0 : block 0 = R(of 0, 1, 2)      0 : sends block 0 -> 1, 2
//     1 : sends block 2 -> 2, block 0 -> 0     1 : block 1 = R(of 0, 1, 2)      1 : sends block 1 -> 2, 0
//     2 : sends block 0 -> 0, block 1 -> 1     2 : block 2 = R(of 0, 1, 2)      2 : sends block 2 -> 0, 1
//
// It moves the bytes of a ring (2 (n-1)/n of the data per participant and direction) in two hops instead of 2 (n-1),
// and the owner sees all contributions at once, so it folds in order R (reduce/reduce.h). Peers are visited from me+1
// upwards, so that the n participants send to n different receivers at any time.
//
// Direct reduce-scatter and allgather are "pairwise" and "spread out" in: R. Thakur, R. Rabenseifner, W. Gropp,
// "Optimization of Collective Communication Operations in MPICH", 2005.
//
// Pure functions; any thread. REQUIRES everywhere: 0 <= me < participants.
#pragma once

#include "algorithms/schedule.h"

namespace farandole {

// One block per participant; block j is folded by participant j.
Schedule DirectAllreduce(int participants, int me);

// For small messages: one block, sent whole to everybody; everybody folds in order R. One hop.
Schedule ExchangeAll(int participants, int me);

// One block per participant; mine is in place already.
Schedule DirectAllgather(int participants, int me);

}  // namespace farandole
