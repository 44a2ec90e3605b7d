// ChoosePath says by which path the data of an operation get to the other ranks, and nothing else says it. Between
// groups, ChooseAllreduce and ChooseAllgather say by which schedule. Pure functions; any thread.
//
//   one rank                        solo        its result is its own contribution      engine/solo.h
//   the user's list names another   library     it has its own way                      backends/
//   one group, small                cells       every rank folds what all have put      engine/small.h
//   only groups of one rank, small  eager       every rank sends its input to all       engine/eager.h
//   one group                       staged      rounds through shared memory            collectives/staging.h
//   only groups of one rank         links       a schedule, on the tensors themselves   collectives/links.h
//   otherwise                       two-level   staged inside, a schedule for each shard between groups
//
// Rank 0 chooses for a name, since it alone knows the caches of the machine and whether a span is free for cells. The
// others learn the path with the name's id (ASSIGN, LEAD). For what runs in a batch of the log each rank chooses again,
// by facts that all know alike.
//
// The limits of schedules come from network namespaces with delay and a limited rate: benchmarks/hosts.py,
// docs/benchmarks/hosts.md. What counts is a hop's time times the rate, the bytes that are under way: 10 Gbit/s and
// 40 us are 50 KB, as are 200 Mbit/s and 2 ms, which two cores can play for eight hosts. Without delay the hosts share
// the machine's cores. The schedule with the fewest messages is the fastest there, the tree, whose participants sleep
// most of the time; between machines nobody profits from that, so such figures decide nothing here.
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
#include <cstdint>

#include "common/types.h"
#include "reduce/reduce.h"
#include "world/layout.h"

namespace farandole {

enum class PathKind : uint8_t { kSolo, kLibrary, kCells, kEager, kStaged, kLinks, kTwoLevel };
constexpr bool IsKnown(PathKind path) { return path <= PathKind::kTwoLevel; }
// On such a path data go out when the operation is submitted, and so announce it. On the others it begins when the log
// says that all ranks have come.
constexpr bool BeginsAtSubmit(PathKind path) { return path == PathKind::kCells || path == PathKind::kEager; }

// The facts on which the choice depends. By the first nine a back end of the user's list says whether it can perform an
// operation.
struct PathFacts {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;  // allreduce, reducescatter; never kAverage where a back end is asked
  int set_size = 1;
  bool on_device = false;          // the tensors do not lie in host memory
  Scale scale{};                   // allreduce, reducescatter
  bool results_on_device = false;  // allgather, alltoall, reducescatter: may lie there, too
  int group_count = 1;             // of ranks that share memory
  bool has_network = true;         // between groups, the back end's library; where the user says so, only ours have
  int largest_group = 1;
  int backend = 0;         // who performs it, by number; 0 is the engine's own
  int64_t size_bytes = 0;  // of all tensors
  bool can_put = false;    // every two ranks of the world have a stream for eager data
  bool in_log = false;  // it runs in a batch of the log, so no path that begins at submission: the first use of a name
  int64_t second_level_cache_bytes = 0;  // of a core of rank 0's machine; 0: not known

  bool is_cut_off() const { return !has_network && group_count > 1; }
};

// With what the layout of a process set says.
PathFacts FactsOf(OpKind kind, ReduceOp reduce, const Layout& layout);

PathKind ChoosePath(const PathFacts& facts);
// True where rank 0 may have chosen `path`, for all that the asking rank knows: it lacks rank 0's caches and spans.
bool IsPossible(PathKind path, PathFacts facts);
// True where the path is kSolo. The engine asks this of every operation, so it takes one fact instead of all.
constexpr bool IsSolo(int set_size) { return set_size == 1; }

// More ranks than this would read too much of each other.
inline constexpr int kMostCellMembers = 64;
// The largest allreduce whose data go through cells. Two cores of an Intel Xeon, cells beside staged, interleaved,
// minimum in microseconds:
//
//              16 KB         32 KB         64 KB        128 KB        256 KB
//   2 ranks   3.5 |  3.5    4.8 |  5.4    6.9 |  5.8     13 | 10       26 | 18
//   3 ranks   7.1 | 15.6     10 | 17.6     16 | 23       28 | 34       52 | 53
//   4 ranks   8.3 | 14.3     12 | 16.6     19 | 23       36 | 35       74 | 61
//
// More than four ranks have not been measured; with a core for each, many would read too much. For two ranks and 64 KB
// nearer cores weigh the other way: two of an AMD EPYC take 2.4 for it, and 4.5 staged for 128 KB. Both machines are
// told apart by their second-level caches: 2 MB, as every Xeon since 2023 has, beside the 1 MB or less of an EPYC.
int64_t CellLimitBytes(int set_size);

inline constexpr int64_t kEagerMostBytes = 512 << 10;
// The largest eager allreduce. Every rank sends everything to all others: one hop instead of four (the negotiation's
// two and two of the data), as long as the bytes take less time than hops. Two ranks send no more than otherwise.
int64_t EagerLimitBytes(int set_size);

enum class Algorithm { kAuto, kDirect, kRing, kTree, kExchange };

// REQUIRES: participants >= 1. `order_matters` is false for integers, min and max, and when the user allows any order.
// `forced` other than kAuto is returned as it is, kRing even where order matters: who forces it wants it.
Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced);

// kDirect or kRing, in which participants pass on what they receive. An algorithm that is forced and gathers nothing is
// taken for kAuto.
Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced);

}  // namespace farandole
