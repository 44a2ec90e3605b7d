// The buffer slots of one small operation: every member writes its input into a slot in shared memory, followed by a
// sequence number (the operation's generation, messages.h). Two buffers alternate; a SlotBuffer is one of them:
//
//   member 0   [ payload up to 56 bytes, or `reduced` | generation ] [ larger payload ... ]
//   member 1   [ payload up to 56 bytes, or `reduced` | generation ] [ larger payload ... ]
//
// A small payload and its generation share a cache line, so only one line crosses between two members.
//
//   one phase    Write; AllHaveWritten; every member reduces all slots by itself (collectives/slot_reduction.h)
//   two phases   WriteForOthers; AllHaveWritten; each member reduces one share of the elements for all, then
//                PublishShare; AllHaveReduced; each copies the others' shares. For payloads above kMaxOnePhaseBytes
//
// Thread safety: one thread at a time uses a member's slot. A SlotBuffer points into the node's segment and owns no
// memory.
//
// Invariants:
// 1. A member stores its generation last (release), and reads the others' data only after it has seen theirs (acquire).
// 2. Uses have the numbers 1, 2, 3 ..., and use k lies in buffer k mod 2. A member overwrites its slot for use k + 2
//    only after use k + 1, in which it saw that all members had written k + 1; each writes k + 1 only after it has read
//    all of use k. So while a member waits for k, another member's number in this buffer is k - 2 or k, never more.
// 3. In two phases only member m reads share m of the inputs and writes share m of the result. The result lies in the
//    slot of the next member, over an input that nobody else reads. So the phases need no further memory.
// 4. `reduced` is used only if the payload is not in the line.
//
// If there are several nodes, each node has one more slot, for the result: the node's leader reduces the inputs,
// exchanges the partial result with the other leaders, writes the final result there, and announces it. The other
// members read it instead of the inputs. The invariants still hold, since no member writes k + 1 before it has read the
// result of use k.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/types.h"

namespace farandole {

// Larger payloads are reduced in two phases: each member reads and reduces only its share, but all members wait twice
// (docs/benchmarks/shared-memory.md#two-phases).
inline constexpr size_t kMaxOnePhaseBytes = 2 << 10;

// One tensor of the payload. A null input reads as zeros; the result for a null output is discarded.
struct SlotTensor {
  const void* input = nullptr;
  void* output = nullptr;  // may be the input
  DType dtype = DType::kFloat32;
  size_t element_count = 0;
  size_t size_bytes() const { return element_count * SizeOf(dtype); }
};

class SlotBuffer {
 public:
  // Flag in the generation word: this member may sleep, so the member that writes or reduces last rings its doorbell.
  static constexpr uint64_t kWantsDoorbell = uint64_t{1} << 63;

  static size_t BytesFor(int member_count, size_t payload_bytes);

  // REQUIRES: `memory` is aligned to a cache line, is zero or cleared before the first use, and has BytesFor(...)
  // bytes; the payload has the same size for all members and uses. `self` is the member that uses this object.
  SlotBuffer(std::byte* memory, int member_count, size_t payload_bytes, int self = 0);

  // Forgets all uses, so that another operation can use the buffer. A thread that still polls an operation that has
  // just ended may read anything, so callers check the ticket under the lock.
  void Clear();
  // Writes this member's inputs. REQUIRES: this member has read everything of the previous use.
  void Write(const SlotTensor* tensors, size_t tensor_count, uint64_t generation, bool wants_doorbell = false);
  // Returns the number of the last use that the member wrote in this buffer; 0 before its first.
  uint64_t LatestOf(int member) const {
    return line(member)->generation.load(std::memory_order_acquire) & ~kWantsDoorbell;
  }
  bool HasWritten(int member, uint64_t generation) const { return LatestOf(member) == generation; }
  bool AllHaveWritten(uint64_t generation) const;

  // ---- two phases. REQUIRES: CanShare(payload_bytes)
  static bool CanShare(size_t payload_bytes) { return payload_bytes > kInLineBytes; }
  struct Elements {
    size_t first, count;
  };
  // Returns the elements of tensor number `index` that `member` reduces for all members.
  Elements ShareOf(const SlotTensor& tensor, size_t index, int member) const;
  // Writes like Write, but leaves out this member's own share, which this member reads from its input.
  void WriteForOthers(const SlotTensor* tensors, size_t tensor_count, uint64_t generation, bool wants_doorbell);
  // Announces that this member has written its share of the result.
  void PublishShare(uint64_t generation) const { line(self_)->reduced.store(generation, std::memory_order_release); }
  bool HasReduced(int member, uint64_t generation) const {
    return line(member)->reduced.load(std::memory_order_acquire) == generation;
  }
  bool AllHaveReduced(uint64_t generation) const;
  // Returns where the member's share of the result is stored: in the next member's slot (invariant 3).
  std::byte* slot_of_share(int member) const { return payload_to_write((member + 1) % member_count_); }

  // Prefetches the lines that this member will soon write, for a one-phase payload. The other members have read them,
  // so without prefetching the write would wait until their caches release the lines; a larger copy hides that delay
  // (docs/benchmarks/shared-memory.md#prefetching).
  void PrefetchSlot(int member) const;

  bool WantsDoorbell(int member) const {
    return (line(member)->generation.load(std::memory_order_relaxed) & kWantsDoorbell) != 0;
  }
  // REQUIRES: this member has written, and no other thread changes its line.
  void RequestDoorbell(int member) { line(member)->generation.fetch_or(kWantsDoorbell); }

  // ---- the result, stored after the members' slots
  static SlotBuffer WithResult(std::byte* memory, int member_count, size_t payload_bytes, int self = 0) {
    SlotBuffer buffer(memory, member_count, payload_bytes, self);
    buffer.has_result_ = true;
    return buffer;
  }
  static size_t BytesWithResult(int member_count, size_t payload_bytes) {
    return BytesFor(member_count + 1, payload_bytes);
  }
  std::byte* result() const { return payload_to_write(member_count_); }
  // Announces that the result of this use is complete, or that there will be none.
  void AnnounceResult(uint64_t generation, bool is_given_up = false) const {
    line(member_count_)->generation.store(is_given_up ? generation | kGivenUp : generation, std::memory_order_release);
  }
  bool HasResult(uint64_t generation) const {
    return line(member_count_)->generation.load(std::memory_order_acquire) == generation;
  }
  bool HasGivenUp(uint64_t generation) const { return HasResult(generation | kGivenUp); }

  // Returns a member's payload.
  const std::byte* payload(int member) const {
    return memory_ + static_cast<size_t>(member) * stride_bytes_ + payload_offset_;
  }
  std::byte* payload_to_write(int member) const { return const_cast<std::byte*>(payload(member)); }
  int member_count() const { return member_count_; }
  int self() const { return self_; }
  // Returns whether the payload shares a cache line with the generation. The rest of the line, up to kInLineBytes, may
  // hold bytes of an earlier use.
  bool payload_is_in_line() const { return payload_offset_ == 0; }
  static constexpr size_t kInLineBytes = 56;

 private:
  struct alignas(64) Line {
    union {
      std::byte payload[kInLineBytes];
      std::atomic<uint64_t> reduced;  // two phases: the last use whose share the member has written
    };
    std::atomic<uint64_t> generation;
  };
  static constexpr uint64_t kGivenUp = kWantsDoorbell;  // in the generation of the result
  static size_t StrideOf(size_t payload_bytes);

  Line* line(int member) const {
    return reinterpret_cast<Line*>(memory_ + static_cast<size_t>(member) * stride_bytes_);
  }

  std::byte* memory_;
  size_t stride_bytes_;
  size_t payload_offset_;
  int member_count_;
  int self_;
  bool has_result_ = false;
};

}  // namespace farandole
