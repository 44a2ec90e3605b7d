#include "common/flat.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "common/failpoint.h"
#include "common/lines.h"

namespace farandole {
namespace {

// What every instruction set folds in whole steps. A payload within the line is followed by zeros or the next segment,
// so folding a little more than the segment, aside, spares the careful handling of odd ends: 13 ns instead of 21.
constexpr size_t kStepBytes = 32;

// What is asked for ahead of a put. Two ranks, microseconds, asking beside not asking: 64 B 0.49 and 0.57, 1 KB 0.63
// and 0.80, 4 KB 1.24 and 1.40. Beyond, the put hides the waiting by itself.
constexpr size_t kMostAskedBytes = 4096;

}  // namespace

// Members lie in pairs of lines: processors fetch a line's neighbour along with it.
size_t FlatHalf::StrideOf(size_t payload_bytes) {
  constexpr size_t kGrain = 2 * sizeof(Line);
  const size_t behind = payload_bytes > kInLineBytes ? payload_bytes : 0;
  return (sizeof(Line) + behind + kGrain - 1) / kGrain * kGrain;
}

size_t FlatHalf::BytesFor(int member_count, size_t payload_bytes) {
  return static_cast<size_t>(member_count) * StrideOf(payload_bytes);
}

FlatHalf::FlatHalf(std::byte* memory, int member_count, size_t payload_bytes)
    : memory_(memory),
      stride_bytes_(StrideOf(payload_bytes)),
      payload_offset_(payload_bytes > kInLineBytes ? sizeof(Line) : 0),
      member_count_(member_count) {
  static_assert(sizeof(Line) == 64 && std::atomic<uint64_t>::is_always_lock_free);
  assert(member_count <= kMostMembers);
}

void FlatHalf::Clear() {
  for (int member = 0; member < member_count_; ++member) line(member)->sequence.store(0, std::memory_order_release);
}

void FlatHalf::AskForLinesOf(int member) const {
  const std::byte* const lines = memory_ + static_cast<size_t>(member) * stride_bytes_;
  const size_t end = std::min(stride_bytes_, kMostAskedBytes);
  for (size_t at = 0; at < end; at += kLineBytes) AskForLine(lines + at);
}

void FlatHalf::Put(int member, const FlatSegment* segments, size_t segment_count, uint64_t sequence, bool wants_bell) {
  FRD_FAILPOINT("flat.put");
  std::byte* at = payload(member);
  for (size_t i = 0; i < segment_count; ++i) {
    const size_t size_bytes = segments[i].size_bytes();
    if (segments[i].input != nullptr) {
      std::memcpy(at, segments[i].input, size_bytes);
    } else {
      std::memset(at, 0, size_bytes);
    }
    at += size_bytes;
  }
  line(member)->sequence.store(wants_bell ? sequence | kWantsBell : sequence, std::memory_order_release);
}

bool FlatHalf::AllHavePut(uint64_t sequence) const {
  for (int m = 0; m < member_count_; ++m) {
    if (!HasPut(m, sequence)) return false;
  }
  return true;
}

void FlatHalf::Fold(ReduceOp reduce, Scale scale, const FlatSegment* segments, size_t segment_count, int reader) const {
  FRD_FAILPOINT("flat.fold");
  const void* inputs[kMostMembers];
  size_t offset = 0;
  for (size_t i = 0; i < segment_count; ++i) {
    const FlatSegment& segment = segments[i];
    const size_t size_bytes = segment.size_bytes();
    for (int m = 0; m < member_count_; ++m) inputs[m] = payload(m) + offset;
    const bool reads_own = reader >= 0 && segment.input != nullptr;
    if (reads_own) inputs[reader] = segment.input;
    const auto fold = [&](size_t element_count, void* output) {
      farandole::Fold(segment.dtype, reduce, inputs, static_cast<size_t>(member_count_), element_count, scale, output);
    };
    if (segment.output != nullptr && payload_offset_ == 0 && size_bytes < kStepBytes &&
        offset + kStepBytes <= kInLineBytes) {
      alignas(kStepBytes) std::byte own[kStepBytes] = {}, result[kStepBytes];
      if (reads_own) inputs[reader] = std::memcpy(own, segment.input, size_bytes);
      fold(kStepBytes / SizeOf(segment.dtype), result);
      std::memcpy(segment.output, result, size_bytes);
    } else if (segment.output != nullptr) {
      fold(segment.element_count, segment.output);
    }
    offset += size_bytes;
  }
}

}  // namespace farandole
