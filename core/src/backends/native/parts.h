// How the parts of all positions, of any sizes, go through rounds of at most one slot: every part is cut to as many
// pieces as there are rounds, so that all parts begin and end together however unequal they are. Pure; values, any
// thread.
//
//   vector    [ part 0 | part 1 | part 2 ]                          by position
//   round t   [ piece t of part 0 | of part 2 || of part 1 ]        group by group: { 0, 2 } and { 1 } here
//
// Pieces lie one behind the other in a round, and those of one group, its region, form one range, so that a region can
// be cut to lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/schedule.h"
#include "world/layout.h"

namespace farandole {

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
