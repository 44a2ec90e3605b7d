// Which schedule carries an allreduce or an allgather between groups. Pure functions; any thread.
//
// The limits come from network namespaces with delay and a limited rate: benchmarks/hosts.py, docs/benchmarks/hosts.md.
// What counts is a hop's time times the rate, the bytes that are under way: 10 Gbit/s and 40 us are 50 KB, as are 200
// Mbit/s and 2 ms, which two cores can play for eight hosts. Without delay the hosts share the machine's cores. The
// schedule with the fewest messages is the fastest there, the tree, whose participants sleep most of the time; between
// machines nobody profits from that, so such figures decide nothing here.
//
//   200 Mbit/s, 2 ms a hop, one rank each, milliseconds
//   hosts   bytes  exchange  direct   ring   tree
//   3        16 K       3.1     4.4    8.6    5.9
//   3        64 K       7.8     7.1   10.1   13.4
//   4       256 K        46      23     27     63
//   8         1 K       2.6     5.1     30     13
//   8        16 K       6.9     5.5     30     17
//   8         1 M         -     130    161    252
//
// Over loopback TCP, a core for each of two participants, microseconds (benchmarks/link_bench):
//
//   bytes  exchange  direct   ring   tree
//   16          4.6     6.8    6.8    6.8
//   16 K        5.3      10     10    8.3
//   64 K         12      12     12     16
//   1 M         166     140    139    166
//   64 M          -   14946  14873  22423
#pragma once

#include <cstddef>

namespace farandole {

enum class Algorithm { kAuto, kDirect, kRing, kTree, kExchange };

// REQUIRES: participants >= 1. `order_matters` is false for integers, min and max, and when the user allows any order.
// `forced` other than kAuto is returned as it is, kRing even where order matters: who forces it wants it.
Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced);

// kDirect or kRing, in which participants pass on what they receive. An algorithm that is forced and gathers nothing is
// taken for kAuto.
Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced);

}  // namespace farandole
