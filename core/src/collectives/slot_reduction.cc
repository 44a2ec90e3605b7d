#include "collectives/slot_reduction.h"

#include <algorithm>
#include <cstring>

#include "common/cache.h"
#include "common/failpoint.h"

namespace farandole {
namespace {

// The peer's payload is prefetched from this size on: a core looks ahead over the instructions of only a few lines, and
// would wait for each line (docs/benchmarks/shared-memory.md#prefetching).
constexpr size_t kMinPrefetchedBytes = 1 << 10;

}  // namespace

TensorReduction::TensorReduction(const SlotBuffer& slots, ReduceOp reduce, Scale scale, const SlotTensor& tensor,
                                 size_t offset, int own)
    : tensor_(tensor) {
  const auto members = static_cast<size_t>(slots.member_count());
  for (size_t m = 0; m < members; ++m) inputs_[m] = slots.payload(static_cast<int>(m)) + offset;
  const bool reads_own = own != kNoMember && tensor.input != nullptr;
  if (reads_own) inputs_[own] = tensor.input;
  const size_t size_bytes = tensor.size_bytes();
  call_ = {inputs_, members, tensor.element_count, scale, tensor.output};
  if (slots.payload_is_in_line() && size_bytes < kStepBytes && offset + kStepBytes <= SlotBuffer::kInLineBytes) {
    std::memset(own_, 0, kStepBytes);
    if (reads_own) inputs_[own] = std::memcpy(own_, tensor.input, size_bytes);
    call_.element_count = kStepBytes / SizeOf(tensor.dtype);
    call_.output = result_;
  } else if (members == 2 && reads_own && size_bytes >= kMinPrefetchedBytes) {
    prefetched_ = static_cast<const std::byte*>(inputs_[1 - own]);
  }
  reduce_ = ChooseReduceFunction(tensor.dtype, reduce, call_.element_count * SizeOf(tensor.dtype));
}

void TensorReduction::Run() const {
  if (prefetched_ != nullptr) {
    const size_t end_byte = std::min(tensor_.size_bytes(), kMaxOnePhaseBytes);
    for (size_t at = 0; at < end_byte; at += kLineBytes) PrefetchForRead(prefetched_ + at);
  }
  reduce_(call_);
  if (call_.output == result_) std::memcpy(tensor_.output, result_, tensor_.size_bytes());
}

void ReduceSlots(const SlotBuffer& slots, ReduceOp reduce, Scale scale, const SlotTensor* tensors, size_t tensor_count,
                 int own) {
  FRD_FAILPOINT("slots.reduce");
  size_t offset = 0;
  for (size_t i = 0; i < tensor_count; offset += tensors[i++].size_bytes()) {
    if (tensors[i].output != nullptr) TensorReduction(slots, reduce, scale, tensors[i], offset, own).Run();
  }
}

void ReduceShare(const SlotBuffer& slots, ReduceOp reduce, Scale scale, const SlotTensor* tensors, size_t tensor_count,
                 uint64_t generation) {
  FRD_FAILPOINT("slots.reduce");
  const int members = slots.member_count(), self = slots.self();
  size_t offset = 0;
  for (size_t i = 0; i < tensor_count; offset += tensors[i++].size_bytes()) {
    const SlotTensor& tensor = tensors[i];
    const SlotBuffer::Elements share = slots.ShareOf(tensor, i, self);
    const size_t at = share.first * SizeOf(tensor.dtype);
    const void* inputs[kMaxSlotMembers];
    for (int m = 0; m < members; ++m) inputs[m] = slots.payload(m) + offset + at;
    if (tensor.input != nullptr) inputs[self] = static_cast<const std::byte*>(tensor.input) + at;
    std::byte* const shared = slots.slot_of_share(self) + offset + at;
    std::byte* const output = tensor.output != nullptr ? static_cast<std::byte*>(tensor.output) + at : nullptr;
    if (members == 2 && output != nullptr) {
      ReduceWithCopy(tensor.dtype, reduce, inputs[0], inputs[1], share.count, scale, output, shared);
      continue;
    }
    Reduce(tensor.dtype, reduce, inputs, static_cast<size_t>(members), share.count, scale, shared);
    if (output != nullptr) std::memcpy(output, shared, share.count * SizeOf(tensor.dtype));
  }
  slots.PublishShare(generation);
}

void CopyShares(const SlotBuffer& slots, const SlotTensor* tensors, size_t tensor_count) {
  FRD_FAILPOINT("slots.copy");
  size_t offset = 0;
  for (size_t i = 0; i < tensor_count; offset += tensors[i++].size_bytes()) {
    const SlotTensor& tensor = tensors[i];
    for (int m = 0; m < slots.member_count(); ++m) {
      if (m == slots.self() || tensor.output == nullptr) continue;
      const SlotBuffer::Elements share = slots.ShareOf(tensor, i, m);
      const size_t at = share.first * SizeOf(tensor.dtype);
      CopyWithPrefetch(static_cast<std::byte*>(tensor.output) + at, slots.slot_of_share(m) + offset + at,
                       share.count * SizeOf(tensor.dtype), kCoreReadAheadBytes);
    }
  }
}

}  // namespace farandole
