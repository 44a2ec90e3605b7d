// The layout says which ranks share memory, and which rank owns which part of a vector between the nodes. All
// functions are pure and depend only on the PeerInfos of the ranks, so all ranks compute the same layout; any thread
// may call them. The World and each process set own a layout as a value.
//
//   node 0: ranks 0 1 2   shards 0 1 2
//   node 1: ranks 3 4     shards 0,1 2
//
// A vector is cut into K shards (1 for small messages). In node g member floor(s * |g| / K) owns shard s.
//
// A rank without shared memory is a node of one, so tcp on one machine runs the same algorithms as tcp between
// machines.
#pragma once

#include <vector>

#include "world/peer_info.h"

namespace farandole {

inline constexpr int kMaxWorldSize = 1 << 20;  // a word of the log has 20 bits for a rank

struct Layout {
  std::vector<std::vector<int>> nodes;  // ordered by lowest rank, ranks ascending
  std::vector<int> node_of;             // by rank
  std::vector<int> member_of;           // by rank: its position in its node

  // The number of ranks. In the layout of a process set all ranks are positions in the set.
  int size() const { return static_cast<int>(node_of.size()); }
  int node_count() const { return static_cast<int>(nodes.size()); }
  int largest_node() const;  // its size
  // K: the size of the only node; of several nodes, that of the second smallest. So at most one node has members
  // with several shards, and no two shards share a link.
  int shard_count() const;
  // The inverse of node_of and member_of.
  int RankOf(int node, int member) const { return nodes[static_cast<size_t>(node)][static_cast<size_t>(member)]; }
};

Layout MakeLayout(const std::vector<PeerInfo>& peers);

// The layout of a process set of these ranks, which have the positions 0, 1, ... in their order. Ranks that share
// memory in the world share it in the set. REQUIRES: ranks ascend.
Layout Restrict(const Layout& layout, const std::vector<int>& ranks);

// The member of a node of node_size that owns `shard` of shard_count.
int OwnerOfShard(int node_size, int shard, int shard_count);

// The shards that `member` of a node owns: [begin, end). In a smaller node a member may own several, in a larger one
// none.
struct ShardRange {
  int begin = 0;
  int end = 0;
};
ShardRange ShardsOf(int member, int node_size, int shard_count);

// The ranks of other nodes, ascending. This rank may exchange data with each of them.
std::vector<int> InterNodePeers(const Layout& layout, int rank);

// Returns whether ranks of different nodes have early lanes (transport.h). They do if the world is small enough for one
// more connection to every rank of another node: any rank leads its node in some process set.
bool HasEarlyLanes(const Layout& layout);

}  // namespace farandole
