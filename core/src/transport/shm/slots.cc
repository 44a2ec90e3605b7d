#include "transport/shm/slots.h"

#include <cstring>

#include "common/cache.h"
#include "common/failpoint.h"

namespace farandole {
// Each member has whole pairs of cache lines, because processors fetch a line together with its neighbour.
size_t SlotBuffer::StrideOf(size_t payload_bytes) {
  constexpr size_t kGrain = 2 * sizeof(Line);
  const size_t behind = payload_bytes > kInLineBytes ? payload_bytes : 0;
  return (sizeof(Line) + behind + kGrain - 1) / kGrain * kGrain;
}

size_t SlotBuffer::BytesFor(int member_count, size_t payload_bytes) {
  return static_cast<size_t>(member_count) * StrideOf(payload_bytes);
}

SlotBuffer::SlotBuffer(std::byte* memory, int member_count, size_t payload_bytes, int self)
    : memory_(memory),
      stride_bytes_(StrideOf(payload_bytes)),
      payload_offset_(payload_bytes > kInLineBytes ? sizeof(Line) : 0),
      member_count_(member_count),
      self_(self) {
  static_assert(sizeof(Line) == 64 && std::atomic<uint64_t>::is_always_lock_free);
}

void SlotBuffer::Clear() {
  const int parts = member_count_ + (has_result_ ? 1 : 0);
  for (int part = 0; part < parts; ++part) {
    if (!payload_is_in_line()) line(part)->reduced.store(0, std::memory_order_relaxed);
    line(part)->generation.store(0, std::memory_order_release);
  }
}

void SlotBuffer::PrefetchSlot(int member) const {
  const std::byte* const lines = memory_ + static_cast<size_t>(member) * stride_bytes_;
  for (size_t at = 0; at < stride_bytes_; at += kLineBytes) PrefetchForWrite(lines + at);
}

void SlotBuffer::Write(const SlotTensor* tensors, size_t tensor_count, uint64_t generation, bool wants_doorbell) {
  FRD_FAILPOINT("slots.write");
  std::byte* at = payload_to_write(self_);
  for (size_t i = 0; i < tensor_count; ++i) {
    const size_t size_bytes = tensors[i].size_bytes();
    if (tensors[i].input != nullptr) {
      std::memcpy(at, tensors[i].input, size_bytes);
    } else {
      std::memset(at, 0, size_bytes);
    }
    at += size_bytes;
  }
  // The release store publishes the payload along with the generation.
  line(self_)->generation.store(wants_doorbell ? generation | kWantsDoorbell : generation, std::memory_order_release);
}

// Shares consist of whole lines, so that no line crosses between members twice. The remainder that does not fill a line
// goes to a different member for each tensor, so that many small tensors do not all go to one member.
SlotBuffer::Elements SlotBuffer::ShareOf(const SlotTensor& tensor, size_t index, int member) const {
  const size_t line_elements = kLineBytes / SizeOf(tensor.dtype), lines = tensor.element_count / line_elements;
  const auto members = static_cast<size_t>(member_count_), m = (static_cast<size_t>(member) + index) % members;
  const size_t first = lines * m / members * line_elements;
  const size_t end = m + 1 == members ? tensor.element_count : lines * (m + 1) / members * line_elements;
  return {first, end - first};
}

void SlotBuffer::WriteForOthers(const SlotTensor* tensors, size_t tensor_count, uint64_t generation,
                                bool wants_doorbell) {
  FRD_FAILPOINT("slots.write");
  std::byte* at = payload_to_write(self_);
  for (size_t i = 0; i < tensor_count; ++i) {
    const SlotTensor& tensor = tensors[i];
    const Elements own = ShareOf(tensor, i, self_);
    const size_t own_begin = own.first * SizeOf(tensor.dtype), own_end = own_begin + own.count * SizeOf(tensor.dtype);
    const size_t size_bytes = tensor.size_bytes();
    if (const auto* const from = static_cast<const std::byte*>(tensor.input); from != nullptr) {
      std::memcpy(at, from, own_begin);
      std::memcpy(at + own_end, from + own_end, size_bytes - own_end);
    } else {
      std::memset(at, 0, size_bytes);  // its own share, too, which it then takes from here
    }
    at += size_bytes;
  }
  line(self_)->generation.store(wants_doorbell ? generation | kWantsDoorbell : generation, std::memory_order_release);
}

// Checks this member's own line first, which is up to twice as fast for the smallest payloads. Presumably the processor
// loads its own line while the other one is on its way, and reloads it if another core has read it meanwhile
// (docs/benchmarks/shared-memory.md#waiting).
bool SlotBuffer::AllHaveWritten(uint64_t generation) const {
  if (!HasWritten(self_, generation)) return false;
  for (int m = 0; m < member_count_; ++m) {
    if (m != self_ && !HasWritten(m, generation)) return false;
  }
  return true;
}

bool SlotBuffer::AllHaveReduced(uint64_t generation) const {
  for (int m = 0; m < member_count_; ++m) {
    if (!HasReduced(m, generation)) return false;
  }
  return true;
}

}  // namespace farandole
