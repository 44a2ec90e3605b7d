#include "algorithms/plan.h"

#include <algorithm>
#include <iterator>

namespace farandole {
namespace {

constexpr const char* kAlgorithms[] = {"", "direct", "ring", "tree", "exchange"};  // by Algorithm

// An allreduce that works element by element, in host memory. A submitter cannot copy or send what a device has not
// computed yet. Averages of integers are summed in wider memory, which only the tasks of a batch have.
bool SumsOnHost(const OperationFacts& facts) {
  return facts.kind == OpKind::kAllreduce && !NeedsWholeTensors(facts.reduce) && !facts.on_device &&
         !facts.averages_integers;
}

bool FitsSlots(const OperationFacts& facts) {
  const bool takes_part = facts.kind == OpKind::kBarrier || SumsOnHost(facts);
  return takes_part && facts.node_count == 1 && facts.set_size <= kMaxSlotMembers &&
         facts.size_bytes <= SlotLimitBytes(facts.set_size, facts.awaited);
}

bool FitsEarly(const OperationFacts& facts) {
  return SumsOnHost(facts) && facts.has_early_lanes && !facts.mixes_dtypes && facts.node_count > 1 &&
         facts.size_bytes > 0 && facts.size_bytes <= EarlyLimitBytes(facts.node_count, facts.largest_node);
}

// Exchange takes one hop instead of two, but sends n-1 times the data. It wins as long as the additional bytes take
// less time than a hop (docs/benchmarks/hosts.md#exchange).
constexpr size_t kExchangeSentBytes = 64 << 10;

// Direct sends 2 (n-1) messages; a tree has 2 log2(n) hops. With small blocks and more than this many participants the
// messages take longer than the hops. The limit is computed: up to 8 hosts with a delay the tree was never faster, and
// more were measured on two shared cores alone (docs/benchmarks/hosts.md#the-tree).
constexpr size_t kTreeParticipants = 64;
constexpr size_t kTreeBlockBytes = 1 << 10;

// The ring needs two links where direct needs n-1, and each receiver has only one sender. It has more hops, which long
// blocks hide (docs/benchmarks/hosts.md#the-ring).
constexpr size_t kRingBlockBytes = 128 << 10;

// In a direct allgather n-1 participants send to each receiver at once, so the ring is faster for long blocks of many
// (docs/benchmarks/hosts.md#allgather).
constexpr int kRingGatherers = 8;

// With two levels the rounds of a task overlap, and a ring would need more of them at once.
bool OverlapsRounds(const TaskFacts& facts) { return facts.largest_node > 1; }

// A schedule needs as many rounds at once as it has phases, where these are many; staging.h has room for 16.
constexpr int kMaxRingNodes = 9;    // 2 (n-1) phases
constexpr int kMaxTreeNodes = 256;  // 2 log2(n) phases

bool HasRounds(const TaskFacts& facts, Algorithm algorithm) {
  if (!OverlapsRounds(facts)) return true;
  if (algorithm == Algorithm::kRing) return facts.node_count <= kMaxRingNodes;
  return algorithm != Algorithm::kTree || facts.node_count <= kMaxTreeNodes;
}

Algorithm ChooseAllreduce(const TaskFacts& facts) {
  if (facts.forced != Algorithm::kAuto) return HasRounds(facts, facts.forced) ? facts.forced : Algorithm::kDirect;
  const auto n = static_cast<size_t>(facts.node_count);
  const size_t block_bytes = facts.size_bytes / n;
  if ((n - 1) * facts.size_bytes <= kExchangeSentBytes) return Algorithm::kExchange;
  const bool may_tree = n > kTreeParticipants && HasRounds(facts, Algorithm::kTree);
  if (may_tree && block_bytes < kTreeBlockBytes) return Algorithm::kTree;
  const bool may_ring = n > 2 && !facts.order_matters && !OverlapsRounds(facts);
  return may_ring && block_bytes >= kRingBlockBytes ? Algorithm::kRing : Algorithm::kDirect;
}

Algorithm ChooseAllgather(const TaskFacts& facts) {
  if (facts.forced == Algorithm::kRing && HasRounds(facts, Algorithm::kRing)) return Algorithm::kRing;
  if (facts.forced == Algorithm::kDirect || facts.forced == Algorithm::kRing) return Algorithm::kDirect;
  const bool crowded = facts.node_count >= kRingGatherers && facts.size_bytes >= kRingBlockBytes;
  return crowded && !OverlapsRounds(facts) ? Algorithm::kRing : Algorithm::kDirect;
}

PathKind ChoosePath(const TaskFacts& facts) {
  if (facts.backend != 0) return PathKind::kLibrary;
  if (facts.node_count == 1) return PathKind::kStaged;
  return facts.largest_node == 1 ? PathKind::kFlat : PathKind::kTwoLevel;
}

Algorithm ChooseAlgorithm(const TaskFacts& facts) {
  if (facts.in_steps) return Algorithm::kDirect;
  if (facts.kind == OpKind::kAllreduce) return ChooseAllreduce(facts);
  return facts.kind == OpKind::kAllgather ? ChooseAllgather(facts) : Algorithm::kAuto;
}

}  // namespace

OperationFacts FactsOf(OpKind kind, ReduceOp reduce, const Layout& layout) {
  OperationFacts facts;
  facts.kind = kind;
  facts.reduce = reduce;
  facts.set_size = layout.size();
  facts.node_count = layout.node_count();
  facts.largest_node = layout.largest_node();
  return facts;
}

Protocol ChooseProtocol(const OperationFacts& facts) {
  if (facts.backend != 0) return Protocol::kNegotiated;
  if (FitsSlots(facts)) return Protocol::kSlots;
  return FitsEarly(facts) ? Protocol::kEarly : Protocol::kNegotiated;
}

bool IsPossible(Protocol protocol, OperationFacts facts) {
  facts.awaited = true;
  return protocol == Protocol::kNegotiated || ChooseProtocol(facts) == protocol;
}

int64_t SlotLimitBytes(int set_size, bool awaited) {
  if (set_size > 2) return std::min(32 << 10, (128 << 10) / set_size);
  return awaited ? 1 << 20 : 64 << 10;
}

int64_t EarlyLimitBytes(int node_count, int largest_node) {
  constexpr int64_t kSentBytes = 64 << 10;
  return node_count == 2 && largest_node == 1 ? kMaxEarlyBytes : kSentBytes / (node_count - 1);
}

Algorithm AlgorithmNamed(const std::string& name) {
  const auto found = std::find(std::begin(kAlgorithms), std::end(kAlgorithms), name);
  return found == std::end(kAlgorithms) ? Algorithm::kAuto : static_cast<Algorithm>(found - std::begin(kAlgorithms));
}

Plan ChoosePlan(const TaskFacts& facts) {
  return {facts.backend, ChoosePath(facts), facts.node_count > 1 ? ChooseAlgorithm(facts) : Algorithm::kAuto};
}

std::string TextOfPlan(uint32_t code) {
  constexpr const char* kPaths[] = {"a library", "early messages", "shared memory", "inter-node links", "two levels"};
  const uint32_t backend = code & 0xff, path = code >> 8 & 0xff, algorithm = code >> 16;
  if (path >= std::size(kPaths) || algorithm >= std::size(kAlgorithms)) return "unknown";
  std::string text = kPaths[path];
  if (backend != 0) text += " (backend " + std::to_string(backend) + ")";
  if (algorithm != 0) text += std::string(" with the ") + kAlgorithms[algorithm] + " schedule";
  return text;
}

}  // namespace farandole
