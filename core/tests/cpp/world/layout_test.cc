#include "world/layout.h"

#include <gtest/gtest.h>

#include <set>

namespace farandole {
namespace {

std::vector<PeerInfo> PeerInfos(const std::vector<std::string>& machines) {
  std::vector<PeerInfo> peers;
  for (const std::string& machine : machines) peers.push_back({"host-" + machine, machine, 1, true, ""});
  return peers;
}

TEST(LayoutTest, RanksOfOneMachineFormANodeWhereverTheyStand) {
  const Layout layout = MakeLayout(PeerInfos({"a", "b", "a", "b", "a"}));
  EXPECT_EQ(layout.nodes, (std::vector<std::vector<int>>{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(layout.node_of, (std::vector<int>{0, 1, 0, 1, 0}));
  EXPECT_EQ(layout.member_of, (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(layout.largest_node(), 3);
  EXPECT_EQ(layout.shard_count(), 3);  // of two nodes, each shard has links of its own
}

TEST(LayoutTest, RanksThatCannotShareMemoryAreAlone) {
  std::vector<PeerInfo> peers = PeerInfos({"a", "a", "a", "a"});
  peers[1].shares_memory = peers[2].shares_memory = false;
  const Layout layout = MakeLayout(peers);
  EXPECT_EQ(layout.nodes, (std::vector<std::vector<int>>{{0, 3}, {1}, {2}}));
}

TEST(LayoutTest, EveryShardHasOneOwnerInEveryNodeAndOwnersKnowTheirShards) {
  for (int shard_count = 1; shard_count <= 17; ++shard_count) {
    for (int node_size = 1; node_size <= shard_count; ++node_size) {
      int carried = 0;
      for (int member = 0; member < node_size; ++member) {
        const ShardRange shards = ShardsOf(member, node_size, shard_count);
        for (int shard = shards.begin; shard < shards.end; ++shard)
          EXPECT_EQ(OwnerOfShard(node_size, shard, shard_count), member);
        carried += shards.end - shards.begin;
      }
      EXPECT_EQ(carried, shard_count);
    }
  }
}

TEST(LayoutTest, NoTwoShardsShareALink) {
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{8, 1}, {8, 4, 4}, {3, 1, 2}, {5, 1, 1}, {2, 7}}) {
    Layout layout;
    for (int size : sizes) layout.nodes.emplace_back(static_cast<size_t>(size));
    std::set<std::vector<int>> links;  // node and member, twice
    for (int shard = 0; shard < layout.shard_count(); ++shard) {
      for (int a = 0; a < layout.node_count(); ++a) {
        for (int b = 0; b < a; ++b) {
          const auto owner = [&](int node) {
            return OwnerOfShard(sizes[static_cast<size_t>(node)], shard, layout.shard_count());
          };
          EXPECT_TRUE(links.insert({a, owner(a), b, owner(b)}).second) << layout.shard_count() << " shards";
        }
      }
    }
  }
}

TEST(LayoutTest, MembersBeyondASingleShardOwnNothing) {
  EXPECT_EQ(ShardsOf(0, 4, 1).end - ShardsOf(0, 4, 1).begin, 1);
  for (int member = 1; member < 4; ++member) EXPECT_EQ(ShardsOf(member, 4, 1).begin, ShardsOf(member, 4, 1).end);
}

TEST(LayoutTest, InterNodePeersAreMutualAndInOtherNodes) {
  const Layout layout = MakeLayout(PeerInfos({"a", "a", "a", "b", "b", "c"}));
  for (int rank = 0; rank < 6; ++rank) {
    for (int peer : InterNodePeers(layout, rank)) {
      EXPECT_NE(layout.node_of[static_cast<size_t>(rank)], layout.node_of[static_cast<size_t>(peer)]);
      const std::vector<int> back = InterNodePeers(layout, peer);
      EXPECT_TRUE(std::set<int>(back.begin(), back.end()).count(rank)) << rank << " and " << peer;
    }
  }
  EXPECT_EQ(InterNodePeers(layout, 5), (std::vector<int>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace farandole
