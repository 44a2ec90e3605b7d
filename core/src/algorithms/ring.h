// Ring algorithms: everybody sends to the next and receives from the previous participant only.
//
//        .--> 0 --> 1 --.         step t of the reduce-scatter, at participant i: sends block i - t     to   i + 1,
//        |              |                                                         adds  block i - t - 1 from i - 1
//        '--- 3 <-- 2 <-'
//
//   participants 4          i = 0               1               2               3         (blocks modulo 4)
//   t = 0              0 -> | + 3      1 -> | + 0      2 -> | + 1      3 -> | + 2
//   t = 1              3 -> | + 2      0 -> | + 3      1 -> | + 0      2 -> | + 1
//   t = 2              2 -> | + 1      1 ...                                              then i holds block i + 1 complete
//   allgather, t = 0   1 -> | = 0      the complete blocks go round in the same way
//
// Every link carries 2 (n-1)/n of the data and every participant needs two links only. The sum of block b starts at participant
// b and goes round, an order that differs from R and from block to block: only for two participants, integers, min and max
// (where order cannot matter), or when the user allows any order.
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
