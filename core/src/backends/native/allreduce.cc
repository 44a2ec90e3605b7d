#include "backends/native/allreduce.h"

#include <algorithm>

namespace farandole {
namespace {

uint64_t Rounds(size_t total_bytes, size_t chunk_bytes) { return (total_bytes + chunk_bytes - 1) / chunk_bytes; }

}  // namespace

// One round while it fits the second-level cache twice, then about four, so that copying in, folding and copying out
// overlap.
size_t ChunkBytes(size_t total_bytes) {
  constexpr size_t kOneRound = 256 << 10, kGrain = 4096;
  if (total_bytes <= kOneRound) return std::max(total_bytes, size_t{1});
  return std::min(kSlotBytes, (total_bytes / 4 + kGrain - 1) / kGrain * kGrain);
}

StagedAllreduce::StagedAllreduce(const Staging* staging, uint64_t first_round, const Work* work, CrossExchange* cross)
    : CrossedOperation(staging, first_round, Rounds(work->TotalBytes(), ChunkBytes(work->TotalBytes())), cross),
      work_(work),
      vector_(&work->segments),
      element_bytes_(SizeOf(work->dtype)),
      chunk_bytes_(ChunkBytes(vector_.size_bytes())),
      lane_count_(cross->topology().LaneCount(vector_.size_bytes())) {}

StagedAllreduce::Chunk StagedAllreduce::chunk(uint64_t t) const {
  const size_t offset = t * chunk_bytes_;
  return {offset, static_cast<int64_t>(std::min(chunk_bytes_, vector_.size_bytes() - offset) / element_bytes_)};
}

Range StagedAllreduce::Carries(int member, uint64_t t) const {
  const Range elements = cross_->topology().Carries(member, lane_count_, chunk(t).element_count, element_bytes_);
  const auto width = static_cast<int64_t>(element_bytes_);
  return {elements.begin * width, elements.end * width};
}

void StagedAllreduce::Put(uint64_t t) {
  const auto [offset, element_count] = chunk(t);
  const size_t end = static_cast<size_t>(element_count) * element_bytes_;
  const Range own = Carries(staging_->member(), t);
  const auto own_begin = static_cast<size_t>(own.begin), own_bytes = static_cast<size_t>(own.size());
  std::byte* const slot = staging_->slot(staging_->member(), number(t));
  if (vector_.Input(offset + own_begin, own_bytes) == nullptr) {
    vector_.ReadInput(offset, end, slot);
    return;
  }
  vector_.ReadInput(offset, own_begin, slot);
  vector_.ReadInput(offset + own_begin + own_bytes, end - own_begin - own_bytes, slot + own_begin + own_bytes);
}

void StagedAllreduce::Make(uint64_t t) {
  FoldOwnLanes(t);
  if (cross_->topology().group_count() == 1) return;
  cross_->Allreduce(*work_, ScalesInGroup() ? Scale() : work_->scale, staging_->result(staging_->member(), number(t)),
                    chunk(t).element_count, lane_count_);
}

void StagedAllreduce::Exchanged(uint64_t t) {
  const Range own = Carries(staging_->member(), t);
  vector_.WriteOutput(chunk(t).offset_bytes + static_cast<size_t>(own.begin), static_cast<size_t>(own.size()),
                      staging_->result(staging_->member(), number(t)) + own.begin);
}

void StagedAllreduce::FoldOwnLanes(uint64_t t) {
  const Range own = Carries(staging_->member(), t);
  if (own.size() == 0) return;
  const auto begin = static_cast<size_t>(own.begin);
  std::vector<const void*> inputs;
  for (int m = 0; m < staging_->count(); ++m) inputs.push_back(staging_->slot(m, number(t)) + begin);
  const void* const in_place = vector_.Input(chunk(t).offset_bytes + begin, static_cast<size_t>(own.size()));
  if (in_place != nullptr) inputs[static_cast<size_t>(staging_->member())] = in_place;
  Fold(work_->dtype, work_->reduce, inputs.data(), inputs.size(), static_cast<size_t>(own.size()) / element_bytes_,
       ScalesInGroup() ? work_->scale : Scale(), staging_->result(staging_->member(), number(t)) + begin);
}

// In one group its fold is the last.
bool StagedAllreduce::ScalesInGroup() const {
  return cross_->topology().group_count() == 1 || ScalesBeforeCrossing(*work_);
}

bool StagedAllreduce::Finish(uint64_t t) {
  for (; finished_members_ < staging_->count(); ++finished_members_) {
    // Starting behind oneself, so that the members do not all read from one.
    const int member = (staging_->member() + finished_members_) % staging_->count();
    if (member == staging_->member()) continue;
    if (!staging_->HasCombined(member, number(t) + 1)) return false;
    const Range theirs = Carries(member, t);
    vector_.WriteOutput(chunk(t).offset_bytes + static_cast<size_t>(theirs.begin), static_cast<size_t>(theirs.size()),
                        staging_->result(member, number(t)) + theirs.begin);
  }
  finished_members_ = 0;
  return true;
}

}  // namespace farandole
