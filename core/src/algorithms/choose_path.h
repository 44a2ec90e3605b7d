// ChoosePath alone decides by which path the data of an operation reach the other ranks. Between groups,
// ChooseAllreduce and ChooseAllgather choose the schedule; schedule.h names the sources. Pure functions; any thread.
//
//   one rank                        solo        its result is its own contribution      engine/solo.h
//   the user's list names another   library     the library moves the data itself       backends/
//   one group, small                cells       every rank folds the inputs of all      engine/small.h
//   several groups, small           early       every group sends its partial to all    engine/early_sum.h
//   one group                       staged      rounds through shared memory            collectives/staging.h
//   only groups of one rank         links       a schedule, on the tensors themselves   collectives/links.h
//   otherwise                       two-level   staged inside, a schedule for each shard between groups
//
// Rank 0 chooses the path of a name, since only rank 0 knows whether all callers wait and whether a buffer range is
// free. The others learn the path with the name's id (ASSIGN, LEAD). For operations in a batch of the log each rank
// chooses again, from facts that are equal on all ranks.
//
// The limits of schedules come from network namespaces with delay and a limited rate (docs/benchmarks/hosts.md). The
// bytes under way, a hop's time times the rate, characterize a network. Without delay the hosts compete for the
// machine's cores, and the tree is fastest, because it has the fewest messages and its participants sleep most of the
// time. Between machines that is no advantage, so the limits ignore such figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/types.h"
#include "reduce/reduce.h"
#include "world/layout.h"

namespace farandole {

enum class PathKind : uint8_t { kSolo, kLibrary, kCells, kEarly, kStaged, kLinks, kTwoLevel };
constexpr bool IsKnown(PathKind path) { return path <= PathKind::kTwoLevel; }
// On such a path the data leave at submission and so announce the operation. On other paths the operation begins when
// the log says that all ranks have arrived.
constexpr bool BeginsAtSubmit(PathKind path) { return path == PathKind::kCells || path == PathKind::kEarly; }

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
  int backend = 0;                 // the number of the backend that performs it; 0: the engine's own
  int64_t size_bytes = 0;          // of all tensors
  bool averages_integers = false;  // some tensor is an average of integers, which only a batch performs
  bool has_early_lanes = false;    // leaders of groups have connections for early messages
  bool mixes_dtypes = false;       // the tensors differ in their element types
  bool in_log = false;             // runs in a batch of the log, so not on a path that begins at submission
  bool awaited = false;            // every caller waits for each such operation before the next one

  bool is_cut_off() const { return !has_network && group_count > 1; }
};

// The facts that follow from the operation and the layout of its process set.
PathFacts FactsOf(OpKind kind, ReduceOp reduce, const Layout& layout);

PathKind ChoosePath(const PathFacts& facts);
// Returns whether rank 0 may have chosen `path`. The calling rank knows neither whether a buffer range was free there
// nor whether the others wait.
bool IsPossible(PathKind path, PathFacts facts);
// Returns whether the path is kSolo. The engine calls this for every operation, so it takes one fact instead of all.
constexpr bool IsSolo(int set_size) { return set_size == 1; }

// With more ranks each member would have to read too much.
inline constexpr int kMostCellMembers = 64;
// The largest allreduce whose data go through buffer slots. Where callers wait for each operation before the next one,
// two ranks have larger slots, which save the negotiation; other operations take longer that way, since each name has
// memory of its own (docs/benchmarks/shared-memory.md#slots-or-staging).
int64_t CellLimitBytes(int set_size, bool awaited = false);
inline constexpr int64_t kMostEarlyBytes = 512 << 10;
// The largest early allreduce. Every group sends its whole partial to all others, which takes one hop instead of four
// (two of the negotiation and two of the data). It wins as long as the bytes take less time than the saved hops. Two
// ranks send no more bytes than on other paths. Where a group has several members, its leader alone folds and sends,
// which its members share on other paths.
int64_t EarlyLimitBytes(int group_count, int largest_group);

enum class Algorithm { kAuto, kDirect, kRing, kTree, kExchange };

// REQUIRES: participants >= 1. `order_matters` is false for integers, min and max, and when the user allows any order.
// `forced` other than kAuto is returned unchanged, kRing even where order matters, since the user has asked for it.
Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced);

// How a rank runs an operation. Ranks compare this in the header of every message (transport.h).
struct Plan {
  int backend = 0;
  PathKind path = PathKind::kLinks;
  Algorithm algorithm = Algorithm::kAuto;  // kAuto: the path has only one

  uint32_t code() const {
    return static_cast<uint32_t>(backend) | static_cast<uint32_t>(path) << 8 | static_cast<uint32_t>(algorithm) << 16;
  }
};
inline uint32_t LibraryPlan(int backend) { return Plan{backend, PathKind::kLibrary, Algorithm::kAuto}.code(); }
inline uint32_t EarlyPlan(Algorithm algorithm) { return Plan{0, PathKind::kEarly, algorithm}.code(); }
std::string TextOfPlan(uint32_t code);  // "inter-node links with the ring schedule"

// Returns kDirect or kRing. A forced algorithm without an allgather counts as kAuto.
Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced);

}  // namespace farandole
