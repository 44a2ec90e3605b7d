#include "backends/native/reducescatter.h"

#include "backends/native/concatenation.h"

namespace farandole {

Parts::Piece StagedReducescatter::MyPiece(uint64_t t) const {
  const std::vector<Parts::Piece> pieces = parts_.PiecesOf(t);
  size_t i = 0;
  while (pieces[i].position != work_->set->position) ++i;
  return pieces[i];
}

Range StagedReducescatter::LanesIn(Range region, int member) const {
  const auto width = static_cast<int64_t>(element_bytes());
  const Range elements = cross_->topology().Carries(member, lane_count_, region.size() / width, element_bytes());
  return {region.begin + elements.begin * width, region.begin + elements.end * width};
}

void StagedReducescatter::Put(uint64_t t) {
  std::byte* const slot = staging_->slot(staging_->member(), number(t));
  for (const Parts::Piece& piece : parts_.PiecesOf(t)) {
    const bool read_in_place =
        one_group() && piece.position == work_->set->position && work_->segments[0].input != nullptr;
    if (!read_in_place) ReadInput(work_->segments[0], piece.vector_offset, piece.size_bytes, slot + piece.round_offset);
  }
}

void StagedReducescatter::Make(uint64_t t) {
  if (one_group()) return FoldOwnPart(t);
  FoldOwnLanes(t);
  StartCrossing(t);
}

void StagedReducescatter::FoldOwnPart(uint64_t t) {
  const Parts::Piece piece = MyPiece(t);
  const Segment& segment = work_->segments[0];
  if (piece.size_bytes == 0 || segment.output == nullptr) return;
  std::vector<const void*> inputs;
  for (int m = 0; m < staging_->count(); ++m) inputs.push_back(staging_->slot(m, number(t)) + piece.round_offset);
  if (segment.input != nullptr) {
    inputs[static_cast<size_t>(staging_->member())] =
        static_cast<const std::byte*>(segment.input) + piece.vector_offset;
  }
  Fold(work_->dtype, work_->reduce, inputs.data(), inputs.size(), piece.size_bytes / element_bytes(), work_->scale,
       static_cast<std::byte*>(segment.output) + piece.part_offset);
}

void StagedReducescatter::FoldOwnLanes(uint64_t t) {
  const Scale scale = ScalesBeforeCrossing(*work_) ? work_->scale : Scale();
  for (const Range& region : parts_.RegionsOf(parts_.PiecesOf(t))) {
    const Range mine = LanesIn(region, staging_->member());
    if (mine.size() == 0) continue;
    std::vector<const void*> inputs;
    for (int m = 0; m < staging_->count(); ++m) inputs.push_back(staging_->slot(m, number(t)) + mine.begin);
    Fold(work_->dtype, work_->reduce, inputs.data(), inputs.size(), static_cast<size_t>(mine.size()) / element_bytes(),
         scale, staging_->result(staging_->member(), number(t)) + mine.begin);
  }
}

void StagedReducescatter::StartCrossing(uint64_t t) {
  const Topology& topology = cross_->topology();
  const Scale scale = ScalesBeforeCrossing(*work_) ? Scale() : work_->scale;
  const std::vector<Range> regions = parts_.RegionsOf(parts_.PiecesOf(t));
  const LaneRange lanes = LanesOf(topology.member, topology.member_count(), lane_count_);
  const auto width = static_cast<int64_t>(element_bytes());
  for (int lane = lanes.begin; lane < lanes.end; ++lane) {
    std::vector<BlockMemory> blocks;
    for (const Range& region : regions) {
      const Range elements = BlockRange(region.size() / width, element_bytes(), lane, lane_count_);
      std::byte* const at = staging_->result(staging_->member(), number(t)) + region.begin + elements.begin * width;
      blocks.push_back({at, at, static_cast<size_t>(elements.size() * width)});
    }
    cross_->ReduceScatter(*work_, scale, lane, lane_count_, std::move(blocks));
  }
}

bool StagedReducescatter::Finish(uint64_t t) {
  if (!staging_->AllCombined(number(t) + 1)) return false;
  if (one_group()) return true;
  const Range region = parts_.RegionsOf(parts_.PiecesOf(t))[static_cast<size_t>(cross_->topology().group)];
  const Parts::Piece mine = MyPiece(t);
  for (int m = 0; m < staging_->count(); ++m) {
    const Parts::Piece piece = Parts::Within(mine, LanesIn(region, m));
    WriteOutput(work_->segments[0], piece.part_offset, piece.size_bytes,
                staging_->result(m, number(t)) + piece.round_offset);
  }
  return true;
}

}  // namespace farandole
