#include "algorithms/partition.h"

#include <algorithm>

namespace farandole {
namespace {

// A piece is longer than its even share by less than two cache lines, one because borders fall on lines.
constexpr size_t kUnevenBytes = 128;

// More than this goes in four rounds at least, so that copying in, folding and copying out overlap.
constexpr size_t kOneRoundBytes = 256 << 10;
constexpr size_t kLeastRounds = 4;

}  // namespace

std::vector<size_t> PartOffsets(const std::vector<size_t>& part_bytes) {
  std::vector<size_t> offsets;
  size_t offset = 0;
  for (size_t bytes : part_bytes) {
    offsets.push_back(offset);
    offset += bytes;
  }
  return offsets;
}

Parts::Parts(const Layout& layout, const std::vector<size_t>& part_bytes, size_t element_bytes, size_t slot_bytes)
    : layout_(&layout), part_bytes_(part_bytes), offsets_(PartOffsets(part_bytes)), element_bytes_(element_bytes) {
  for (size_t bytes : part_bytes) total_bytes_ += bytes;
  const size_t room = slot_bytes - kUnevenBytes * part_bytes.size();
  if (total_bytes_ > kOneRoundBytes) rounds_ = std::max((total_bytes_ + room - 1) / room, kLeastRounds);
  if (total_bytes_ > 0) rounds_ = std::max(rounds_, uint64_t{1});
}

std::vector<Parts::Piece> Parts::PiecesOf(uint64_t t) const {
  std::vector<Piece> pieces;
  pieces.reserve(part_bytes_.size());
  size_t at = 0;
  for (const auto& group : layout_->groups) {
    for (int position : group) {
      const auto p = static_cast<size_t>(position);
      const auto width = static_cast<int64_t>(element_bytes_);
      const Range elements = BlockRange(static_cast<int64_t>(part_bytes_[p]) / width, element_bytes_,
                                        static_cast<int>(t), static_cast<int>(rounds_));
      const auto begin = static_cast<size_t>(elements.begin * width);
      const auto size_bytes = static_cast<size_t>(elements.size() * width);
      pieces.push_back({position, offsets_[p] + begin, begin, at, size_bytes});
      at += size_bytes;
    }
  }
  return pieces;
}

std::vector<Range> Parts::RegionsOf(const std::vector<Piece>& pieces) const {
  std::vector<Range> regions;
  size_t i = 0;
  int64_t at = 0;
  for (const auto& group : layout_->groups) {
    Range region{at, at};
    for (size_t m = 0; m < group.size(); ++m) region.end += static_cast<int64_t>(pieces[i++].size_bytes);
    at = region.end;
    regions.push_back(region);
  }
  return regions;
}

Parts::Piece Parts::Within(const Piece& piece, Range bytes_of_round) {
  const auto begin = std::max(piece.round_offset, static_cast<size_t>(bytes_of_round.begin));
  const auto end = std::min(piece.round_offset + piece.size_bytes, static_cast<size_t>(bytes_of_round.end));
  const size_t skipped = begin - piece.round_offset;
  if (begin >= end) return {piece.position, piece.vector_offset, piece.part_offset, piece.round_offset, 0};
  return {piece.position, piece.vector_offset + skipped, piece.part_offset + skipped, begin, end - begin};
}

}  // namespace farandole
