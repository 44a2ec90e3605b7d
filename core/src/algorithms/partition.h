// How vectors are spread over members and groups. Pure; values, any thread.
//
// Partition: one vector, as one member sees it.
//
//   chunk    [ shard 0 | shard 1 | shard 2 ]    K shards, cut by BlockRange
//   group 0    m0        m1        m2           every shard is combined in each group by its owner, and exchanged
//   group 1    m0        m0        m1           between the owners of the groups
//
// Parts: the parts of all positions, of any sizes, in rounds of at most one slot. Every part is cut to as many pieces
// as there are rounds, so that all parts begin and end together however unequal they are:
//
//   vector    [ part 0 | part 1 | part 2 ]                          by position
//   round t   [ piece t of part 0 | of part 2 || of part 1 ]        group by group: { 0, 2 } and { 1 } here
//
// Pieces lie one behind the other in a round, and those of one group, its region, form one range, so that a region can
// be cut to shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"
#include "world/layout.h"

namespace farandole {

struct Partition {
  const Layout* layout = nullptr;
  int group = 0;
  int member = 0;

  int group_count() const { return layout->group_count(); }
  const std::vector<int>& ranks() const { return layout->groups[static_cast<size_t>(group)]; }
  int member_count() const { return static_cast<int>(ranks().size()); }

  // Below some size the shards of several groups are too thin to be worth their messages: one shard, owned by the
  // leaders.
  int ShardCount(size_t total_bytes) const {
    constexpr size_t kOneShardBytes = 32 << 10;
    return group_count() > 1 && total_bytes <= kOneShardBytes ? 1 : layout->shard_count();
  }

  // Elements that `of_member` of this group owns when element_count elements are cut into shard_count shards.
  Range Owns(int of_member, int shard_count, int64_t element_count, size_t element_bytes) const {
    const ShardRange shards = ShardsOf(of_member, member_count(), shard_count);
    if (shards.begin == shards.end) return {};
    return {BlockRange(element_count, element_bytes, shards.begin, shard_count).begin,
            BlockRange(element_count, element_bytes, shards.end - 1, shard_count).end};
  }
};

// Where each part begins when they lie one behind the other.
std::vector<size_t> PartOffsets(const std::vector<size_t>& part_bytes);

class Parts {
 public:
  struct Piece {
    int position;
    size_t vector_offset;  // in the vector of all parts
    size_t part_offset;    // in its part
    size_t round_offset;
    size_t size_bytes;
  };

  // More positions than this leave no room in a slot for a cache line of each.
  static constexpr int kMostPositions = 2048;

  // REQUIRES: part_bytes are multiples of element_bytes; at most kMostPositions.
  Parts(const Layout& layout, const std::vector<size_t>& part_bytes, size_t element_bytes, size_t slot_bytes);

  uint64_t rounds() const { return rounds_; }
  size_t total_bytes() const { return total_bytes_; }
  // In the order in which they lie in the round.
  std::vector<Piece> PiecesOf(uint64_t t) const;
  // Bytes of the round, group by group.
  std::vector<Range> RegionsOf(const std::vector<Piece>& pieces) const;

  // The part of a piece that lies in a range of the round; may be empty.
  static Piece Within(const Piece& piece, Range bytes_of_round);

 private:
  const Layout* layout_;
  std::vector<size_t> part_bytes_;
  std::vector<size_t> offsets_;
  size_t element_bytes_;
  size_t total_bytes_ = 0;
  uint64_t rounds_ = 0;
};

}  // namespace farandole
