// How an operation runs. Two functions decide, each called from one place. Both are pure; any thread.
//
//   ChooseProtocol   rank 0, once per name: how later uses of the name begin
//
//     one node, small        slots        every rank reduces the inputs of all            collectives/slot_reduction.h
//     several nodes, small   early        every node sends its partial to all others      execution/early_sum.h
//     otherwise              negotiated   a task of a batch, once all ranks have arrived
//
//   ChoosePlan       every rank, once per task of a batch, from facts that are equal on all ranks
//
//     the user's list names another backend   library     it moves the data itself        backends/
//     one node                                staged      rounds through shared memory    collectives/staging.h
//     every node has one rank                 flat        a schedule on the tensors       collectives/shard_exchange.h
//     otherwise                               two-level   staged within a node, a schedule for each shard between nodes
//
// A process set of one rank needs neither (execution/single_rank.h). Only rank 0 knows whether all callers wait and
// whether a buffer range is free, so the others learn the protocol with the name's id (ASSIGN). schedule.h names the
// sources of the schedules.
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

// ---- how the uses of a name begin

// kSlots, kEarly: the data leave at submission, and so announce the operation. kNegotiated: the operation begins when
// the log says that all ranks have arrived.
enum class Protocol : uint8_t { kNegotiated, kSlots, kEarly };
constexpr bool IsKnown(Protocol protocol) { return protocol <= Protocol::kEarly; }

// The facts on which the protocol depends. From the first ten a backend of the user's list decides whether it can
// perform an operation.
struct OperationFacts {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;  // allreduce, reducescatter; never kAverage when a backend is asked
  int set_size = 1;
  bool on_device = false;          // the tensors lie in device memory
  Scale scale{};                   // allreduce, reducescatter: of the result
  bool results_on_device = false;  // allgather, alltoall, reducescatter: results may lie there, too
  int node_count = 1;              // of ranks that share memory
  bool has_network = true;         // whether the backend's library has a network between nodes
  double prescale = 1.0;           // allreduce, reducescatter: of each operand
  int largest_node = 1;
  int backend = 0;                 // the number of the backend that performs it; 0: the engine's own
  int64_t size_bytes = 0;          // of all tensors
  bool averages_integers = false;  // some tensor is an average of integers, which only a batch performs
  bool has_early_lanes = false;    // leaders of nodes have connections for early messages
  bool mixes_dtypes = false;       // the tensors differ in their element types
  bool awaited = false;            // every caller waits for each such operation before the next one

  bool is_cut_off() const { return !has_network && node_count > 1; }
};

// The facts that follow from the operation and the layout of its process set.
OperationFacts FactsOf(OpKind kind, ReduceOp reduce, const Layout& layout);

Protocol ChooseProtocol(const OperationFacts& facts);
// Returns whether rank 0 may have chosen `protocol`. The calling rank knows neither whether a buffer range was free
// there nor whether the others wait.
bool IsPossible(Protocol protocol, OperationFacts facts);
constexpr bool IsSingleRank(int set_size) { return set_size == 1; }

// With more ranks each member would have to read too much.
inline constexpr int kMaxSlotMembers = 64;
// The largest allreduce whose data go through buffer slots. Where callers wait for each operation before the next one,
// two ranks have larger slots, which save the negotiation; other operations take longer that way, since each name has
// memory of its own (docs/benchmarks/shared-memory.md#slots-or-staging).
int64_t SlotLimitBytes(int set_size, bool awaited = false);
// True if some process set can have buffer slots of this size.
inline bool MayHaveSlots(OpKind kind, int64_t size_bytes) {
  return kind == OpKind::kAllreduce && size_bytes <= SlotLimitBytes(2, /*awaited=*/true);
}
inline constexpr int64_t kMaxEarlyBytes = 512 << 10;
// The largest early allreduce. Every node sends its whole partial to all others, which takes one hop instead of four
// (two of the negotiation and two of the data). It wins as long as the bytes take less time than the saved hops. Two
// ranks send no more bytes than on other paths. Where a node has several members, its leader alone reduces and sends,
// which its members share on other paths.
int64_t EarlyLimitBytes(int node_count, int largest_node);

// ---- how a task runs

enum class PathKind : uint8_t { kLibrary, kEarly, kStaged, kFlat, kTwoLevel };
enum class Algorithm : uint8_t { kAuto, kDirect, kRing, kTree, kExchange };
Algorithm AlgorithmNamed(const std::string& name);  // kAuto for any other name

// Ranks compare this in the header of every message (transport.h).
struct Plan {
  int backend = 0;
  PathKind path = PathKind::kFlat;
  Algorithm algorithm = Algorithm::kAuto;  // between nodes; kAuto: the kind has only one

  uint32_t code() const {
    return static_cast<uint32_t>(backend) | static_cast<uint32_t>(path) << 8 | static_cast<uint32_t>(algorithm) << 16;
  }
};
std::string TextOfPlan(uint32_t code);  // "inter-node links with the ring schedule"

struct TaskFacts {
  OpKind kind = OpKind::kAllreduce;
  int backend = 0;
  int node_count = 1;
  int largest_node = 1;
  size_t size_bytes = 0;       // allreduce: of one shard; allgather: of the largest part
  bool order_matters = false;  // false for integers, min and max, and when the user allows any order
  bool in_steps = false;       // several direct collectives, as for Adasum
  // The user's choice. The ring is taken even where order matters, since the user has asked for it; an allgather has
  // only kDirect and kRing, and so many nodes of several ranks that a schedule has too many phases take kDirect.
  Algorithm forced = Algorithm::kAuto;
};
Plan ChoosePlan(const TaskFacts& facts);

}  // namespace farandole
