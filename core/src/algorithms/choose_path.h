// ChoosePath alone decides by which path the data of an operation reach the other ranks. Between groups,
// ChooseAllreduce and ChooseAllgather choose the schedule; schedule.h names the sources. Pure functions; any thread.
//
//   one rank                        solo        its result is its own contribution      engine/solo.h
//   the user's list names another   library     the library moves the data itself       backends/
//   one group, small                cells       every rank folds the inputs of all      engine/small.h
//   several groups, small           eager       every group sends its partial to all    engine/eager.h
//   one group                       staged      rounds through shared memory            collectives/staging.h
//   only groups of one rank         links       a schedule, on the tensors themselves   collectives/links.h
//   otherwise                       two-level   staged inside, a schedule for each shard between groups
//
// Rank 0 chooses the path of a name, since only rank 0 knows the size of its caches and whether a span is free for
// cells. The others learn the path with the name's id (ASSIGN, LEAD). For operations in a batch of the log each rank
// chooses again, from facts that are equal on all ranks.
//
// The limits of schedules come from network namespaces with delay and a limited rate: benchmarks/hosts.py,
// docs/benchmarks/hosts.md. The bytes under way, a hop's time times the rate, characterize a network: 10 Gbit/s and 40
// us are 50 KB. So are 200 Mbit/s and 2 ms, which two cores can simulate for eight hosts. Without delay the hosts
// compete for the machine's cores, and the tree is fastest, because it has the fewest messages and its participants
// sleep most of the time. Between machines that is no advantage, so the limits ignore such figures.
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
// On such a path the data leave at submission and so announce the operation. On other paths the operation begins when
// the log says that all ranks have arrived.
constexpr bool BeginsAtSubmit(PathKind path) { return path == PathKind::kCells || path == PathKind::kEager; }

// The facts on which the choice depends. From the first ten a backend of the user's list decides whether it can
// perform an operation.
struct PathFacts {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;  // allreduce, reducescatter; never kAverage when a backend is asked
  int set_size = 1;
  bool on_device = false;          // the tensors lie in device memory
  Scale scale{};                   // allreduce, reducescatter: of the result
  bool results_on_device = false;  // allgather, alltoall, reducescatter: results may lie there, too
  int group_count = 1;             // of ranks that share memory
  bool has_network = true;         // whether the backend's library has a network between groups
  double prescale = 1.0;           // allreduce, reducescatter: of each operand
  int largest_group = 1;
  int backend = 0;                       // the number of the backend that performs it; 0: the engine's own
  int64_t size_bytes = 0;                // of all tensors
  bool can_put = false;                  // ranks of different groups have streams for eager data
  bool in_log = false;                   // runs in a batch of the log, so not on a path that begins at submission
  bool awaited = false;                  // every caller waits for each such operation before the next one
  int64_t second_level_cache_bytes = 0;  // of a core of rank 0's machine; 0: unknown
  int64_t tuned_cell_bytes = 0;          // the limit of cells that was measured; 0: none was

  bool is_cut_off() const { return !has_network && group_count > 1; }
};

// The facts that follow from the operation and the layout of its process set.
PathFacts FactsOf(OpKind kind, ReduceOp reduce, const Layout& layout);

PathKind ChoosePath(const PathFacts& facts);
// Returns whether rank 0 may have chosen `path`. The calling rank knows neither rank 0's caches and free spans
// nor what was measured there.
bool IsPossible(PathKind path, PathFacts facts);
// Returns whether the path is kSolo. The engine calls this for every operation, so it takes one fact instead of all.
constexpr bool IsSolo(int set_size) { return set_size == 1; }

// With more ranks each member would have to read too much.
inline constexpr int kMostCellMembers = 64;
// The largest allreduce whose data go through cells. Cells beside staged, interleaved, microseconds:
//
//                                             8 KB         16 KB         32 KB         64 KB        128 KB
//   Intel Xeon, 2 ranks, minimum                         3.5 |  3.5    4.8 |  5.4    6.9 |  5.8     13 | 10
//   AMD EPYC, 4 ranks on 2 cores, minimum   6.1 | 14.4                10.2 | 17.4   24.3 | 21.0
//   the same, cores far apart, median      13.8 | 19.0                41.5 | 22.9   79.0 | 29.4
//
// Since one rank on each core folds for all there (engine/small.cc), again, minimums:
//
//                                                              64 KB        128 KB
//   AMD EPYC, 4 ranks on 2 cores                            17.0 | 20.3
//   the same, cores far apart                                 36 | 28
//   AMD EPYC, 3 ranks on 2 cores                            10.7 | 16.5     20 | 23
//   the same, cores far apart                                               63 | 34
//   Intel Xeon (480 MiB of third-level cache), 4 ranks      17.8 | 18.2   32.5 | 28.4
//   the same, 3 ranks                                       13.7 | 17.4   25.7 | 25.1
//
// So three ranks have cells of 64 KB where they share cores. More than four ranks have not been measured. Two ranks and
// 64 KB give the opposite result on cores that are closer together: two cores of an AMD EPYC take 2.4 for it, and 4.5
// staged for 128 KB. A machine on which this was measured has a limit of its own (world/peer_info.h), which may be
// smaller. Elsewhere the size of the second-level cache distinguishes the machines (common/cache.h).
//
// Where callers wait for each operation before the next one, two ranks have larger cells, which save the negotiation.
// As above, minimum and median of blocking calls in turns on an EPYC (Zen 4), of one name:
//
//   128 KB   5.4 | 6.5    5.5 | 7.3
//   256 KB    10 | 11      17 | 20
//   512 KB    21 | 22      21 | 24
//   1 MB      41 | 44      42 | 47
//
// They gain more where a rank comes late (docs/design/data-plane.md). Other operations take longer that way: each of 64
// in flight with 128 KB twice as long, since each name has memory of its own. So do blocking calls of many names
// (controller/id_table.cc).
int64_t CellLimitBytes(int set_size, bool awaited = false);
// A round of a larger one through the memory of one group, where none has been measured (collectives/allreduce.cc).
inline constexpr int64_t kRoundBytes = 256 << 10;

inline constexpr int64_t kEagerMostBytes = 512 << 10;
// The largest eager allreduce. Every group sends its whole partial to all others, which takes one hop instead of four
// (two of the negotiation and two of the data). It wins as long as the bytes take less time than the saved hops. Two
// ranks send no more bytes than on other paths. Where a group has several members, its leader alone folds and sends,
// which its members share on other paths.
int64_t EagerLimitBytes(int group_count, int largest_group);

enum class Algorithm { kAuto, kDirect, kRing, kTree, kExchange };

// REQUIRES: participants >= 1. `order_matters` is false for integers, min and max, and when the user allows any order.
// `forced` other than kAuto is returned unchanged, kRing even where order matters, since the user has asked for it.
Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced);

// Returns kDirect or kRing. A forced algorithm without an allgather counts as kAuto.
Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced);

}  // namespace farandole
