#include "controller/fuse.h"

namespace farandole {
namespace {

bool CanShare(const FuseItem& a, const FuseItem& b) {
  if (a.kind != b.kind || a.set != b.set || a.backend != b.backend) return false;
  if (!Fuses(a.kind) || a.root != b.root) return false;
  if (!Reduces(a.kind)) return true;
  return !NeedsWholeTensors(a.reduce) && a.dtype == b.dtype && a.reduce == b.reduce &&
         a.scale.multiplier == b.scale.multiplier && a.scale.divisor == b.scale.divisor;
}

}  // namespace

std::vector<std::vector<size_t>> Fuse(const std::vector<FuseItem>& items, int64_t threshold_bytes) {
  std::vector<std::vector<size_t>> groups;
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < items.size(); ++i) {
    // Only the latest group of a kind is open: looking further back would let a small tensor overtake many large ones.
    size_t group = groups.size();
    for (size_t g = groups.size(); g-- > 0 && group == groups.size();) {
      if (!CanShare(items[groups[g][0]], items[i])) continue;
      if (bytes[g] + items[i].size_bytes > threshold_bytes) break;
      group = g;
    }
    if (group == groups.size()) {
      groups.emplace_back();
      bytes.push_back(0);
    }
    groups[group].push_back(i);
    bytes[group] += items[i].size_bytes;
  }
  return groups;
}

}  // namespace farandole
