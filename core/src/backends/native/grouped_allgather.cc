#include "backends/native/grouped_allgather.h"

#include <cstring>

#include "backends/native/concatenation.h"

namespace farandole {

bool GroupedAllgather::IsInMyGroup(const Parts::Piece& piece) const {
  return cross_->topology().layout->group_of[static_cast<size_t>(piece.position)] == cross_->topology().group;
}

std::byte* GroupedAllgather::SlotOf(const Parts::Piece& piece, uint64_t t) const {
  const int member = cross_->topology().layout->member_of[static_cast<size_t>(piece.position)];
  return staging_->slot(member, number(t)) + piece.round_offset;
}

Range GroupedAllgather::LaneOf(Range region, int lane) const {
  const Range bytes = BlockRange(region.size(), 1, lane, lane_count_);
  return {region.begin + bytes.begin, region.begin + bytes.end};
}

void GroupedAllgather::Put(uint64_t t) {
  for (const Parts::Piece& piece : parts_.PiecesOf(t)) {
    if (piece.position != work_->set->position) continue;
    ReadInput(work_->segments[0], piece.part_offset, piece.size_bytes, SlotOf(piece, t));
  }
}

void GroupedAllgather::Make(uint64_t t) {
  StartCrossing(t);
  TakeOwnGroup(t);
}

void GroupedAllgather::TakeOwnGroup(uint64_t t) {
  for (const Parts::Piece& piece : parts_.PiecesOf(t)) {
    if (IsInMyGroup(piece)) WriteOutput(work_->segments[0], piece.vector_offset, piece.size_bytes, SlotOf(piece, t));
  }
}

void GroupedAllgather::StartCrossing(uint64_t t) {
  const Topology& topology = cross_->topology();
  const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
  const std::vector<Range> regions = parts_.RegionsOf(pieces);
  std::byte* const result = staging_->result(staging_->member(), number(t));
  const LaneRange lanes = LanesOf(topology.member, topology.member_count(), lane_count_);
  for (int lane = lanes.begin; lane < lanes.end; ++lane) {
    const Range mine = LaneOf(regions[static_cast<size_t>(topology.group)], lane);
    for (const Parts::Piece& whole : pieces) {
      const Parts::Piece piece = Parts::Within(whole, mine);
      if (piece.size_bytes > 0) std::memcpy(result + piece.round_offset, SlotOf(piece, t), piece.size_bytes);
    }
    std::vector<BlockMemory> blocks;
    for (const Range& region : regions) {
      const Range bytes = LaneOf(region, lane);
      std::byte* const at = result + bytes.begin;
      blocks.push_back({at, at, static_cast<size_t>(bytes.size())});
    }
    cross_->Allgather(lane, lane_count_, std::move(blocks));
  }
}

bool GroupedAllgather::Finish(uint64_t t) {
  if (!staging_->AllCombined(number(t) + 1)) return false;
  const Topology& topology = cross_->topology();
  const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
  const std::vector<Range> regions = parts_.RegionsOf(pieces);
  for (int lane = 0; lane < lane_count_; ++lane) {
    const int carrier = LaneCarrier(topology.member_count(), lane, lane_count_);
    for (const Parts::Piece& whole : pieces) {
      if (IsInMyGroup(whole)) continue;
      const auto group = static_cast<size_t>(topology.layout->group_of[static_cast<size_t>(whole.position)]);
      const Parts::Piece piece = Parts::Within(whole, LaneOf(regions[group], lane));
      WriteOutput(work_->segments[0], piece.vector_offset, piece.size_bytes,
                  staging_->result(carrier, number(t)) + piece.round_offset);
    }
  }
  return true;
}

}  // namespace farandole
