#include "backends/native/allgather.h"

#include <algorithm>
#include <cstring>

namespace farandole {
namespace {

uint64_t Rounds(const std::vector<size_t>& rank_bytes) {
  const size_t most = *std::max_element(rank_bytes.begin(), rank_bytes.end());
  return (most + kSlotBytes - 1) / kSlotBytes;
}

void CopyBytes(void* to, const void* from, size_t size_bytes) {
  if (size_bytes > 0) std::memcpy(to, from, size_bytes);
}

}  // namespace

std::vector<size_t> PartOffsets(const std::vector<size_t>& rank_bytes) {
  std::vector<size_t> offsets;
  size_t offset = 0;
  for (size_t bytes : rank_bytes) {
    offsets.push_back(offset);
    offset += bytes;
  }
  return offsets;
}

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
  const auto* const input = static_cast<const std::byte*>(work_->segments[0].input);
  auto* const output = static_cast<std::byte*>(work_->segments[0].output) + offsets_[static_cast<size_t>(me)];
  const size_t size_bytes = ChunkOf(me, t);
  if (size_bytes == 0) return;
  CopyBytes(staging_->slot(me, number(t)), input + t * kSlotBytes, size_bytes);
  CopyBytes(output + t * kSlotBytes, input + t * kSlotBytes, size_bytes);
}

Status StagedAllgather::Combine(uint64_t t, bool* ready, bool* /*moved*/) {
  if (!staging_->AllPublished(number(t) + 1)) return Status::Ok();
  auto* const output = static_cast<std::byte*>(work_->segments[0].output);
  for (int k = 1; k < staging_->count(); ++k) {
    const int member = (staging_->member() + k) % staging_->count();
    CopyBytes(output + offsets_[static_cast<size_t>(member)] + t * kSlotBytes, staging_->slot(member, number(t)),
              ChunkOf(member, t));
  }
  *ready = true;
  return Status::Ok();
}

bool StagedAllgather::Finish(uint64_t t) { return staging_->AllCombined(number(t) + 1); }

}  // namespace farandole
