// Ring algorithms: everybody sends to the next and receives from the previous participant only.
//
//      .--> 0 --> 1 --.        reduce-scatter, step t: participant i sends block i - t, folds block i - t - 1
//      |              |        allgather, step t:      participant i sends block i + 1 - t, receives block i - t
//      '--- 3 <-- 2 <-'        (all modulo the number of participants)
//
//   blocks "sent, folded"    participant 0       1        2        3
//   reduce-scatter  t = 0            0, 3     1, 0     2, 1     3, 2
//                   t = 1            3, 2     0, 3     1, 0     2, 1
//                   t = 2            2, 1     3, 2     0, 3     1, 0
//   complete                            1        2        3        0
//
// Every link carries 2 (n-1)/n of the data and every participant needs two links only. The sum of block b starts at
// participant b and goes round, an order that differs from R and from block to block: only for two participants,
// integers, min and max (where order cannot matter), or when the user allows any order.
//
// Every step has its own phase: while block sums of one chunk travel, the links carry other steps of other chunks.
// Source: P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009.
//
// Pure functions; any thread. REQUIRES everywhere: 0 <= me < participants.
#pragma once

#include "algorithms/schedule.h"

namespace farandole {

// One block per participant.
Schedule RingAllreduce(int participants, int me);

// One block per participant; mine is in place already.
Schedule RingAllgather(int participants, int me);

}  // namespace farandole
