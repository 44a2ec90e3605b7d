#include "backends/native/allgather.h"

#include <algorithm>

#include "backends/native/concatenation.h"
#include "backends/native/parts.h"

namespace farandole {
namespace {

uint64_t Rounds(const std::vector<size_t>& rank_bytes) {
  return SlotsFor(*std::max_element(rank_bytes.begin(), rank_bytes.end()));
}

}  // namespace

StagedAllgather::StagedAllgather(const Staging* staging, uint64_t first_round, const Work* work)
    : StagedOperation(staging, first_round, Rounds(work->rank_bytes)),
      work_(work),
      offsets_(PartOffsets(work->rank_bytes)) {}

size_t StagedAllgather::ChunkOf(int member, uint64_t t) const {
  const size_t bytes = work_->rank_bytes[static_cast<size_t>(member)];
  return bytes <= t * kSlotBytes ? 0 : std::min(kSlotBytes, bytes - t * kSlotBytes);
}

void StagedAllgather::Put(uint64_t t) {
  const int me = staging_->member();
  std::byte* const slot = staging_->slot(me, number(t));
  ReadInput(work_->segments[0], t * kSlotBytes, ChunkOf(me, t), slot);
  WriteOutput(work_->segments[0], offsets_[static_cast<size_t>(me)] + t * kSlotBytes, ChunkOf(me, t), slot);
}

Status StagedAllgather::Combine(uint64_t t, bool* ready, bool* /*moved*/) {
  if (!staging_->AllPublished(number(t) + 1)) return Status::Ok();
  for (int k = 1; k < staging_->count(); ++k) {
    const int member = (staging_->member() + k) % staging_->count();
    WriteOutput(work_->segments[0], offsets_[static_cast<size_t>(member)] + t * kSlotBytes, ChunkOf(member, t),
                staging_->slot(member, number(t)));
  }
  *ready = true;
  return Status::Ok();
}

bool StagedAllgather::Finish(uint64_t t) { return staging_->AllCombined(number(t) + 1); }

}  // namespace farandole
