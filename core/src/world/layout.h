// Who shares memory with whom, and who owns which part of a vector between the groups. Pure functions of what
// the ranks say about themselves.
//
//   group 0: ranks 0 1 2   shards 0 1 2
//   group 1: ranks 3 4     shards 0,1 2
//
// A vector is cut into K shards, K = the size of the largest group (1 for small messages). In group g its member
// floor(s * |g| / K) owns shard s.
//
// A rank that shares no memory is a group of one, so tcp on one machine runs the very algorithms that run between
// machines.
#pragma once

#include <vector>

#include "world/peer_info.h"

namespace farandole {

struct Layout {
  std::vector<std::vector<int>> groups;  // ordered by lowest rank, ranks ascending
  std::vector<int> group_of;             // by rank
  std::vector<int> member_of;            // by rank: its position in its group

  int size() const { return static_cast<int>(group_of.size()); }
  int group_count() const { return static_cast<int>(groups.size()); }
  int shard_count() const;  // K
  int RankOf(int group, int member) const { return groups[static_cast<size_t>(group)][static_cast<size_t>(member)]; }
};

// apart[r]: rank r could not share memory although its PeerInfo promised to.
Layout MakeLayout(const std::vector<PeerInfo>& peers, const std::vector<bool>& apart);

// The layout of some of the ranks, numbered 0, 1, ... in their order. REQUIRES: ranks ascend.
Layout Restrict(const Layout& layout, const std::vector<int>& ranks);

// The member of a group of group_size that owns `shard` of shard_count.
int OwnerOfShard(int group_size, int shard, int shard_count);

// The shards that `member` owns: [begin, end), possibly empty.
struct ShardRange {
  int begin = 0;
  int end = 0;
};
ShardRange ShardsOf(int member, int group_size, int shard_count);

// The ranks of other groups: with all of them this rank may have to exchange data, ascending.
std::vector<int> Counterparts(const Layout& layout, int rank);

// Whether ranks send each other what they put to eager operations (controller/inbox.h): where no two share memory, and
// as long as one more connection between any two is no burden.
bool HasPutStreams(const Layout& layout);

}  // namespace farandole
