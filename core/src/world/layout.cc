#include "world/layout.h"

#include <algorithm>
#include <map>
#include <string>

namespace farandole {

int Layout::largest_node() const {
  size_t most = 1;
  for (const auto& node : nodes) most = std::max(most, node.size());
  return static_cast<int>(most);
}

int Layout::shard_count() const {
  if (node_count() < 2) return largest_node();
  std::vector<size_t> sizes;
  for (const auto& node : nodes) sizes.push_back(node.size());
  std::nth_element(sizes.begin(), sizes.begin() + 1, sizes.end());
  return static_cast<int>(sizes[1]);
}

// The loop visits ranks in order, so nodes are ordered by their lowest rank, and ranks ascend in each node.
Layout MakeLayout(const std::vector<PeerInfo>& peers) {
  Layout layout;
  std::map<std::string, size_t> node_by_machine;
  for (size_t r = 0; r < peers.size(); ++r) {
    size_t node = layout.nodes.size();
    if (peers[r].shares_memory) node = node_by_machine.emplace(peers[r].machine, node).first->second;
    if (node == layout.nodes.size()) layout.nodes.emplace_back();
    layout.node_of.push_back(static_cast<int>(node));
    layout.member_of.push_back(static_cast<int>(layout.nodes[node].size()));
    layout.nodes[node].push_back(static_cast<int>(r));
  }
  return layout;
}

Layout Restrict(const Layout& layout, const std::vector<int>& ranks) {
  Layout restricted;
  std::map<int, size_t> node_by_old;
  for (size_t position = 0; position < ranks.size(); ++position) {
    const int old = layout.node_of[static_cast<size_t>(ranks[position])];
    const size_t node = node_by_old.emplace(old, restricted.nodes.size()).first->second;
    if (node == restricted.nodes.size()) restricted.nodes.emplace_back();
    restricted.node_of.push_back(static_cast<int>(node));
    restricted.member_of.push_back(static_cast<int>(restricted.nodes[node].size()));
    restricted.nodes[node].push_back(static_cast<int>(position));
  }
  return restricted;
}

// OwnerOfShard and ShardsOf round alike, so ShardsOf(m) are exactly the shards whose owner is m.
int OwnerOfShard(int node_size, int shard, int shard_count) { return shard * node_size / shard_count; }

ShardRange ShardsOf(int member, int node_size, int shard_count) {
  // The smallest shard with shard * node_size >= member * shard_count, and likewise for the next member.
  const auto first = [&](int m) { return (m * shard_count + node_size - 1) / node_size; };
  return {first(member), first(member + 1)};
}

std::vector<int> InterNodePeers(const Layout& layout, int rank) {
  std::vector<int> ranks;
  for (int other = 0; other < layout.size(); ++other) {
    const bool same_node = layout.node_of[static_cast<size_t>(other)] == layout.node_of[static_cast<size_t>(rank)];
    if (!same_node) ranks.push_back(other);
  }
  return ranks;
}

bool HasEarlyLanes(const Layout& layout) {
  constexpr int kMaxRanks = 64;  // each rank needs one more descriptor for each other rank
  return layout.node_count() > 1 && layout.size() <= kMaxRanks;
}

}  // namespace farandole
