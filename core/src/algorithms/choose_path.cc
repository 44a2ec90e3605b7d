#include "algorithms/choose_path.h"

#include <algorithm>
#include <iterator>

namespace farandole {
namespace {

// An allreduce that works element by element, in host memory. A submitter cannot copy or send what a device has not
// computed yet. Averages of integers are summed in wider memory, which only the tasks of a batch have.
bool SumsOnHost(const PathFacts& facts) {
  return facts.kind == OpKind::kAllreduce && !NeedsWholeTensors(facts.reduce) && !facts.on_device &&
         !facts.averages_integers;
}

bool FitsCells(const PathFacts& facts) {
  const bool takes_part = facts.kind == OpKind::kBarrier || SumsOnHost(facts);
  return takes_part && !facts.in_log && facts.group_count == 1 && facts.set_size <= kMostCellMembers &&
         facts.size_bytes <= CellLimitBytes(facts.set_size, facts.awaited);
}

bool FitsEarly(const PathFacts& facts) {
  return SumsOnHost(facts) && !facts.in_log && facts.has_early_lanes && !facts.mixes_dtypes && facts.group_count > 1 &&
         facts.size_bytes > 0 && facts.size_bytes <= EarlyLimitBytes(facts.group_count, facts.largest_group);
}

struct Row {
  PathKind kind;
  bool (*matches)(const PathFacts& facts);
};

// The first row that matches decides.
constexpr Row kRows[] = {
    {PathKind::kSolo, [](const PathFacts& facts) { return IsSolo(facts.set_size); }},
    {PathKind::kLibrary, [](const PathFacts& facts) { return facts.backend != 0; }},
    {PathKind::kCells, FitsCells},
    {PathKind::kEarly, FitsEarly},
    {PathKind::kStaged, [](const PathFacts& facts) { return facts.group_count == 1; }},
    {PathKind::kLinks, [](const PathFacts& facts) { return facts.largest_group == 1; }},
    {PathKind::kTwoLevel, [](const PathFacts&) { return true; }},
};

// Exchange takes one hop instead of two, but sends n-1 times the data. It wins as long as the additional bytes take
// less time than a hop (docs/benchmarks/hosts.md).
constexpr size_t kExchangeSentBytes = 64 << 10;

// Direct sends 2 (n-1) messages; a tree has 2 log2(n) hops. With small blocks and more than this many participants the
// messages take longer than the hops. The limit is computed: for the hosts that were measured, direct or exchange was
// faster than the tree (docs/benchmarks/hosts.md).
constexpr size_t kTreeParticipants = 64;
constexpr size_t kTreeBlockBytes = 1 << 10;

// The ring needs two links where direct needs n-1, and each receiver has only one sender. It has more hops, which long
// blocks hide (docs/benchmarks/hosts.md).
constexpr size_t kRingBlockBytes = 128 << 10;

// In a direct allgather n-1 participants send to each receiver at once, so the ring is faster for long blocks of many
// (docs/benchmarks/hosts.md).
constexpr int kRingGatherers = 8;

}  // namespace

PathFacts FactsOf(OpKind kind, ReduceOp reduce, const Layout& layout) {
  PathFacts facts;
  facts.kind = kind;
  facts.reduce = reduce;
  facts.set_size = layout.size();
  facts.group_count = layout.group_count();
  facts.largest_group = layout.shard_count();
  return facts;
}

PathKind ChoosePath(const PathFacts& facts) {
  return std::find_if(std::begin(kRows), std::end(kRows), [&facts](const Row& row) { return row.matches(facts); })
      ->kind;
}

bool IsPossible(PathKind path, PathFacts facts) {
  facts.in_log = !BeginsAtSubmit(path);
  facts.awaited = true;
  return ChoosePath(facts) == path;
}

int64_t CellLimitBytes(int set_size, bool awaited) {
  if (set_size > 2) return std::min(32 << 10, (128 << 10) / set_size);
  return awaited ? 1 << 20 : 64 << 10;
}

int64_t EarlyLimitBytes(int group_count, int largest_group) {
  constexpr int64_t kSentBytes = 64 << 10;
  return group_count == 2 && largest_group == 1 ? kMostEarlyBytes : kSentBytes / (group_count - 1);
}

Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced) {
  if (forced != Algorithm::kAuto) return forced;
  const size_t n = static_cast<size_t>(participants), block_bytes = size_bytes / n;
  if ((n - 1) * size_bytes <= kExchangeSentBytes) return Algorithm::kExchange;
  if (n > kTreeParticipants && block_bytes < kTreeBlockBytes) return Algorithm::kTree;
  if (n > 2 && !order_matters && block_bytes >= kRingBlockBytes) return Algorithm::kRing;
  return Algorithm::kDirect;
}

std::string TextOfPlan(uint32_t code) {
  constexpr const char* kPaths[] = {"a copy",        "a library",        "shared buffers", "early messages",
                                    "shared memory", "inter-node links", "two levels"};
  constexpr const char* kAlgorithms[] = {"", "direct", "ring", "tree", "exchange"};
  const uint32_t backend = code & 0xff, path = code >> 8 & 0xff, algorithm = code >> 16;
  if (path >= std::size(kPaths) || algorithm >= std::size(kAlgorithms)) return "unknown";
  std::string text = kPaths[path];
  if (backend != 0) text += " (backend " + std::to_string(backend) + ")";
  if (algorithm != 0) text += std::string(" with the ") + kAlgorithms[algorithm] + " schedule";
  return text;
}

Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced) {
  if (forced == Algorithm::kDirect || forced == Algorithm::kRing) return forced;
  const bool crowded = participants >= kRingGatherers && largest_block_bytes >= kRingBlockBytes;
  return crowded ? Algorithm::kRing : Algorithm::kDirect;
}

}  // namespace farandole
