// Binomial trees: few messages (log2 n hops) for data too small to fill the links, over any number of participants.
//
// The parent of participant i is i without its lowest set bit:
//
//   0 --+-- 1                      level 0: odd numbers send to their left neighbour
//       +-- 2 --- 3                level 1: 2, 6 send to 0, 4
//       +-- 4 --+-- 5              level 2: 4 sends to 0
//               +-- 6              (7 participants; 7 would hang below 6)
//
// The reduction up this tree is order R (reduce/reduce.h): R(S) = R(first p) + R(rest), p the largest power of two
// below |S|. Claim: after level j, participant i (a multiple of 2^(j+1)) holds R(S), S = {i .. i+2^(j+1)-1} as far as
// these exist. Before level 0 it holds itself, R of one. At level j it holds R of the 2^j participants from i on, and
// its child i+2^j, if there is one, R of those from i+2^j on, which are between 1 and 2^j many. So |S| lies in (2^j,
// 2^(j+1)], p is 2^j, and the fold (mine, child's) is R(first p) + R(rest). Without a child nothing is added and the
// claim holds as it stands.
//
// Each level has its own phase, so a long message flows through the tree chunk by chunk.
// Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
//
// Pure functions; any thread. REQUIRES everywhere: 0 <= me, root < participants.
#pragma once

#include "algorithms/schedule.h"

namespace farandole {

// One block: reduced up to participant 0 in order R, then broadcast down the same tree, the farthest child first.
Schedule TreeAllreduce(int participants, int me);

// One block, down the tree whose participant 0 is the root and whose numbers run on from there, modulo participants.
Schedule TreeBroadcast(int participants, int me, int root);

}  // namespace farandole
