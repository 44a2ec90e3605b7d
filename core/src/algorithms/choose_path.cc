#include "algorithms/choose_path.h"

#include <algorithm>
#include <iterator>

#include "common/cache.h"

namespace farandole {
namespace {

// Where a core has a large second-level cache, two ranks stage more than this, unless they wait for each sum: then two
// cores of an Intel Xeon (Sapphire Rapids) take 7.1 us for 64 KB in cells and 9.2 staged, 12.5 and 15.6 for 128 KB, 45
// and 53 for 512 KB.
constexpr int64_t kPairStagedBytes = 32 << 10;

// Where nothing was measured, more than two ranks stage more than this: larger cells are faster for three ranks on two
// cores, and were not measured for three with a core each.
constexpr int64_t kCrowdStagedBytes = 32 << 10;

// An allreduce that works element by element, in host memory. A submitter cannot copy or send what a device has not
// computed yet.
bool SumsOnHost(const PathFacts& facts) {
  return facts.kind == OpKind::kAllreduce && !NeedsWholeTensors(facts.reduce) && !facts.on_device;
}

bool IsBetterStaged(const PathFacts& facts) {
  if (facts.tuned_cell_bytes > 0) return facts.size_bytes > facts.tuned_cell_bytes;
  if (facts.set_size > 2) return facts.size_bytes > kCrowdStagedBytes;
  return !facts.awaited && facts.second_level_cache_bytes >= kLargeSecondLevelBytes &&
         facts.size_bytes > kPairStagedBytes;
}

bool FitsCells(const PathFacts& facts) {
  const bool takes_part = facts.kind == OpKind::kBarrier || (SumsOnHost(facts) && !IsBetterStaged(facts));
  return takes_part && !facts.in_log && facts.group_count == 1 && facts.set_size <= kMostCellMembers &&
         facts.size_bytes <= CellLimitBytes(facts.set_size, facts.awaited);
}

bool FitsEager(const PathFacts& facts) {
  return SumsOnHost(facts) && !facts.in_log && facts.can_put && facts.group_count > 1 && facts.size_bytes > 0 &&
         facts.size_bytes <= EagerLimitBytes(facts.group_count, facts.largest_group);
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
    {PathKind::kEager, FitsEager},
    {PathKind::kStaged, [](const PathFacts& facts) { return facts.group_count == 1; }},
    {PathKind::kLinks, [](const PathFacts& facts) { return facts.largest_group == 1; }},
    {PathKind::kTwoLevel, [](const PathFacts&) { return true; }},
};

// Exchange takes one hop instead of two, but sends n-1 times the data. It wins as long as the additional bytes take
// less time than a hop. With 50 KB under way it wins at 48 KB sent by each participant, and loses at 112. With 12 KB
// under way (200 Mbit/s, 0.5 ms) it loses at 32 and 48 KB, by factors of 1.2 and 1.9.
constexpr size_t kExchangeSentBytes = 64 << 10;

// Direct sends 2 (n-1) messages at about 2 us each; a tree has 2 log2(n) hops. With small blocks and more than this
// many participants the messages take longer than the hops. The limit is computed: for up to 8 hosts, any delay and up
// to 256 KB, direct or exchange was faster than the tree. With 16 hosts on two cores, 1 KB and 0.5 ms a hop, exchange
// takes 2.4 ms and the tree 4.9; with 32 hosts, which share the cores, 13.8 and 7.0.
constexpr size_t kTreeParticipants = 64;
constexpr size_t kTreeBlockBytes = 1 << 10;

// The ring needs two links where direct needs n-1, and each receiver has only one sender. It has more hops, which long
// blocks hide. Its speed relative to direct, where a rate is the limit and 3 to 8 hosts sum 1 MB: 0.93 to 1.24 with 12
// KB or less under way, 0.78 to 1.02 with 50 KB; 4 MB: 0.97 to 1.06, and 0.81 to 1.18. Blocks of 64 and 85 KB: 0.51 to
// 0.99 in nine of ten networks.
constexpr size_t kRingBlockBytes = 128 << 10;

// In a direct allgather n-1 participants send to each receiver at once. With 8 participants and blocks of 128 and 256
// KB the ring's relative speed is 0.99 to 1.49, 1.21 in the geometric mean, where there is delay or a rate; 0.81 and
// 0.98 where there is neither. With 64 KB it is 0.69 to 1.20, with 4 participants 0.97 to 1.16 and 0.67.
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
  facts.tuned_cell_bytes = facts.size_bytes;
  return ChoosePath(facts) == path;
}

int64_t CellLimitBytes(int set_size, bool awaited) {
  if (set_size > 3) return (128 << 10) / set_size;
  if (set_size == 3) return 64 << 10;
  return awaited ? 1 << 20 : 64 << 10;
}

int64_t EagerLimitBytes(int group_count, int largest_group) {
  constexpr int64_t kSentBytes = 64 << 10;
  return group_count == 2 && largest_group == 1 ? kEagerMostBytes : kSentBytes / (group_count - 1);
}

Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced) {
  if (forced != Algorithm::kAuto) return forced;
  const size_t n = static_cast<size_t>(participants), block_bytes = size_bytes / n;
  if ((n - 1) * size_bytes <= kExchangeSentBytes) return Algorithm::kExchange;
  if (n > kTreeParticipants && block_bytes < kTreeBlockBytes) return Algorithm::kTree;
  if (n > 2 && !order_matters && block_bytes >= kRingBlockBytes) return Algorithm::kRing;
  return Algorithm::kDirect;
}

Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced) {
  if (forced == Algorithm::kDirect || forced == Algorithm::kRing) return forced;
  const bool crowded = participants >= kRingGatherers && largest_block_bytes >= kRingBlockBytes;
  return crowded ? Algorithm::kRing : Algorithm::kDirect;
}

}  // namespace farandole
