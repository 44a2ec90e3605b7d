// Allgather in log2(n) hops, for blocks too small to be worth a message each: at step s everybody passes all that it
// has, but no more than is missing, to the participant 2^s before it.
//
//   5 participants, participant 0 has   0 | 0 1 | 0 1 2 3 | 0 1 2 3 4      after step 0, 1, 2; all modulo 5
//
// With blocks of one byte it is a barrier: nobody has all blocks before everybody has begun.
//
// Sources: D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", 1988; J. Bruck et al.,
// "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems", 1997.
//
// Pure function; any thread. REQUIRES: 0 <= me < participants.
#pragma once

#include "algorithms/schedule.h"

namespace farandole {

// One block per participant; mine is in place already. What is received is passed on.
Schedule DisseminationAllgather(int participants, int me);

}  // namespace farandole
