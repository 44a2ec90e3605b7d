#include "algorithms/choose.h"

namespace farandole {
namespace {

// One hop instead of two, but (n-1) times the data: worth it as long as the additional bytes take less time than a hop.
// 64 KB are 12 us on loopback and about 50 us at 10 Gbit/s, where a hop takes 15 - 50 us.
constexpr size_t kExchangeSentBytes = 64 << 10;

// Direct sends 2 (n-1) messages at about 2 us each; a tree has 2 log2(n) hops. With small blocks and more than this
// many participants the messages take longer than the hops. Computed, not measured.
constexpr size_t kTreeParticipants = 64;
constexpr size_t kTreeBlockBytes = 1 << 10;

// The ring needs two links where direct needs n-1, and no receiver is sent to by several at once. It has more hops,
// which long blocks hide. At four participants and 16 MB it took 15.0 ms, direct 17.0.
constexpr size_t kRingBlockBytes = 64 << 10;

}  // namespace

Algorithm ChooseAllreduce(size_t size_bytes, int participants, bool order_matters, Algorithm forced) {
  if (forced != Algorithm::kAuto) return forced;
  const size_t n = static_cast<size_t>(participants), block_bytes = size_bytes / n;
  if ((n - 1) * size_bytes <= kExchangeSentBytes) return Algorithm::kExchange;
  if (n > kTreeParticipants && block_bytes < kTreeBlockBytes) return Algorithm::kTree;
  if (n > 2 && !order_matters && block_bytes >= kRingBlockBytes) return Algorithm::kRing;
  return Algorithm::kDirect;
}

Algorithm ChooseAllgather(size_t largest_block_bytes, int participants, Algorithm forced) {
  if (forced == Algorithm::kDirect || forced == Algorithm::kRing || forced == Algorithm::kHalving) return forced;
  const bool many_small =
      static_cast<size_t>(participants) > kTreeParticipants && largest_block_bytes < kTreeBlockBytes;
  return many_small ? Algorithm::kHalving : Algorithm::kDirect;
}

}  // namespace farandole
