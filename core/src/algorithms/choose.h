// Which algorithm carries an allreduce between groups: a measured table. Pure functions; any thread.
//
// Measured with benchmarks/link_bench over loopback TCP on two cores of a shared machine, processes pinned, minimum of
// several runs in microseconds. "links" moves the bytes of a direct allreduce in one round and folds nothing.
//
//   two participants, a core each            three on two cores          four on two cores
//   bytes     links  exch.  direct  ring  tree   exch.  direct   tree       exch.  direct   tree
//   16          3.8    4.6     6.8   6.8   6.8      25      23     22          40      26     28
//   1 K         8.8    4.7     9.5   9.6   7.0      27      57     22          41      88     28
//   16 K        9.5    5.3    10.0  10.0   8.3      30      58     24          46      90     31
//   64 K         11     12      12    12    16      53      65     44          91      98     61
//   256 K        34     33      38    38    43     152     121    114         234     172    143
//   1 M         133    166     140   139   166
//   16 M       3344      -    3142  3216  3008
//   64 M      15723      -   14946 14873 22423
//
// More participants than cores flatter the tree, whose participants wait most of the time: a core serves another one
// meanwhile. Between hosts nobody profits from that, and the number of hops in a row decides.
//
// Recursive halving beside direct, on the same two cores, minimum of two interleaved runs:
//
//   three participants     four                   eight
//   bytes  direct  halving    direct  halving    direct  halving
//   64 K       55       40        73       52       328      229
//   256 K     132      118       143      116       494      397
//   1 M       533      476       741      545      1918     1327
//   16 M                       12971    13781
//
// Of two participants it asks the very steps of direct (1 MB: 208 both). That it wins where more share a core, 1.1 to
// 1.5 times, it owes, like the tree, to that core: 2 log2(n) messages to be woken for instead of 2 (n-1). Between hosts
// the same bytes take 2 log2(n) hops instead of 2, so it is taken only where it is forced, which pays for three and
// more groups on one machine.
#pragma once

#include <cstddef>

namespace farandole {

enum class Algorithm { kAuto, kDirect, kRing, kTree, kExchange, kHalving };

// REQUIRES: participants >= 1. `order_matters` is false for integers, min and max, and when the user allows any order.
// `forced` other than kAuto is returned as it is, kRing even where order matters: who forces it wants it.
Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced);

// kDirect, kRing or kHalving, which stands for dissemination here. In the last two participants pass on what they
// receive. An algorithm that is forced and gathers nothing is taken for kAuto.
Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced);

}  // namespace farandole
