#include "world/layout.h"

#include <algorithm>
#include <map>
#include <string>

namespace farandole {

int Layout::largest_group() const {
  size_t most = 1;
  for (const auto& group : groups) most = std::max(most, group.size());
  return static_cast<int>(most);
}

int Layout::shard_count() const {
  if (group_count() < 2) return largest_group();
  std::vector<size_t> sizes;
  for (const auto& group : groups) sizes.push_back(group.size());
  std::nth_element(sizes.begin(), sizes.begin() + 1, sizes.end());
  return static_cast<int>(sizes[1]);
}

// The loop visits ranks in order, so groups are ordered by their lowest rank, and ranks ascend in each group.
Layout MakeLayout(const std::vector<PeerInfo>& peers) {
  Layout layout;
  std::map<std::string, size_t> group_by_machine;
  for (size_t r = 0; r < peers.size(); ++r) {
    size_t group = layout.groups.size();
    if (peers[r].shares_memory) group = group_by_machine.emplace(peers[r].machine, group).first->second;
    if (group == layout.groups.size()) layout.groups.emplace_back();
    layout.group_of.push_back(static_cast<int>(group));
    layout.member_of.push_back(static_cast<int>(layout.groups[group].size()));
    layout.groups[group].push_back(static_cast<int>(r));
  }
  return layout;
}

Layout Restrict(const Layout& layout, const std::vector<int>& ranks) {
  Layout restricted;
  std::map<int, size_t> group_by_old;
  for (size_t position = 0; position < ranks.size(); ++position) {
    const int old = layout.group_of[static_cast<size_t>(ranks[position])];
    const size_t group = group_by_old.emplace(old, restricted.groups.size()).first->second;
    if (group == restricted.groups.size()) restricted.groups.emplace_back();
    restricted.group_of.push_back(static_cast<int>(group));
    restricted.member_of.push_back(static_cast<int>(restricted.groups[group].size()));
    restricted.groups[group].push_back(static_cast<int>(position));
  }
  return restricted;
}

// OwnerOfShard and ShardsOf round alike, so ShardsOf(m) are exactly the shards whose owner is m.
int OwnerOfShard(int group_size, int shard, int shard_count) { return shard * group_size / shard_count; }

ShardRange ShardsOf(int member, int group_size, int shard_count) {
  // The smallest shard with shard * group_size >= member * shard_count, and likewise for the next member.
  const auto first = [&](int m) { return (m * shard_count + group_size - 1) / group_size; };
  return {first(member), first(member + 1)};
}

std::vector<int> Counterparts(const Layout& layout, int rank) {
  std::vector<int> ranks;
  for (int other = 0; other < layout.size(); ++other) {
    const bool same_group = layout.group_of[static_cast<size_t>(other)] == layout.group_of[static_cast<size_t>(rank)];
    if (!same_group) ranks.push_back(other);
  }
  return ranks;
}

bool HasEarlyLanes(const Layout& layout) {
  constexpr int kMostRanks = 64;  // each rank needs one more descriptor for each other rank
  return layout.group_count() > 1 && layout.size() <= kMostRanks;
}

}  // namespace farandole
