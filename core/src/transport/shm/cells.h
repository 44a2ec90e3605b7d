// Buffer slots of one small operation: shared memory into which every member writes its whole input, and then a
// sequence number (stamp). Every member reads all inputs, and collectives/slot_reduction.h reduces them. Two buffers
// are used in turns; a CellBuffer is one of them:
//
//   member 0   [ payload up to 56 bytes, or further stamps | stamp ] [ larger payload ...            ]
//   member 1   [ payload up to 56 bytes, or further stamps | stamp ] [ larger payload ...            ]
//
// A small payload and its stamp share a cache line, so only one line crosses between two members.
//
// Of two members with a larger payload each can fold one half for both (FoldCells); then it stamps that, too. A member
// that folds as soon as it can puts only the half that the other folds (PutHalf). If the other does not come soon, it
// puts the rest. So a member in between depends on the other's thread, which runs until it has done one of both.
//
// Uses have the numbers 1, 2, 3 ..., and use k lies in buffer k mod 2. Two facts make further signals unnecessary:
// - A member stores its stamp k last (release). The others read its data only after they saw that stamp (acquire).
// - A member overwrites its part of a buffer for use k + 2 only after use k + 1, in which it saw that all members had
//   put k + 1. Each member puts k + 1 only after it has read all of use k, so those reads precede the writes. So do the
//   writes of a member that reduces a half for both.
// So while a member waits for k, another member's number in this buffer is k - 2 or k, never more.
//
// A group that is one of several has one more part, for the result: its leader folds the inputs, exchanges the partial
// with other leaders, writes the result there, and stamps it. The others read it instead of the inputs. Both facts hold
// as before, since no member puts k + 1 before it has read the result of use k.
//
// A CellBuffer points into the group's segment and owns no memory. One thread at a time uses the part of a member.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/cache.h"
#include "common/types.h"

namespace farandole {

// Above this size each of two members reduces one half for both: it overwrites the peer's input with its half of the
// result, and the peer reads it there. So only half as many cache lines move between the cores
// (docs/benchmarks/shared-memory.md#halves).
inline constexpr size_t kMostFoldedWhole = 2 << 10;

// How much of each member's input a use has in a buffer.
enum class Share {
  kHalf,  // of two members, at least the half that the other folds
  kAll,   // everything, or that half and the result of the other one
};

// A tensor of the payload. A null input reads as zeros; the result for a null output is dropped.
struct CellTensor {
  const void* input = nullptr;
  void* output = nullptr;  // may be the input
  DType dtype = DType::kFloat32;
  size_t element_count = 0;
  size_t size_bytes() const { return element_count * SizeOf(dtype); }
};

class CellBuffer {
 public:
  // A bit of the stamp word: this member may sleep, so the member that puts last rings its bell.
  static constexpr uint64_t kWantsBell = uint64_t{1} << 63;

  static size_t BytesFor(int member_count, size_t payload_bytes);

  // REQUIRES: `memory` is aligned to a cache line, was zero or cleared before the first use, and has BytesFor(...)
  // bytes; the payload is as large for all members and uses. `self` is the member that uses this object: AllHavePut is
  // right for any, and fastest for that one.
  CellBuffer(std::byte* memory, int member_count, size_t payload_bytes, int self = 0);

  // Forgets all uses, for another operation. Safe while a thread still polls an operation that has just ended.
  void Clear();
  // REQUIRES: this member has folded the use before.
  void Put(int member, const CellTensor* tensors, size_t tensor_count, uint64_t stamp, bool wants_bell = false);
  // Puts the half that the other member folds; StampFold or PutRest has to follow. REQUIRES: as Put; two members;
  // !payload_is_in_line(); the payload is this tensor.
  void PutHalf(int member, const CellTensor& tensor, uint64_t stamp);
  // Puts the rest, unless `stop` says meanwhile that the result can be taken: then the other member waits for StampFold
  // and needs no rest. Returns whether all is put.
  template <typename Stop>
  bool PutRest(int member, const CellTensor& tensor, uint64_t stamp, const Stop& stop) {
    const Half half = HalfOf(tensor, member);
    const size_t element_bytes = SizeOf(tensor.dtype), end = (half.first + half.count) * element_bytes;
    for (size_t at = half.first * element_bytes; at < end; at += kRestStepBytes) {
      if (stop()) return false;
      CopyPart(member, tensor, at, std::min(at + kRestStepBytes, end));
    }
    line(member)->behind.all_put.store(stamp, std::memory_order_release);
    return true;
  }
  // The elements of a tensor that a member folds for both.
  struct Half {
    size_t first, count;
  };
  static Half HalfOf(const CellTensor& tensor, int member);

  bool HasPut(int member, uint64_t stamp, Share share = Share::kHalf) const {
    if (LatestOf(member) != stamp) return false;
    return share == Share::kHalf || HasPutAll(member, stamp) || HasStampedFold(member, stamp);
  }
  // The number of the use that the member put last in this buffer; 0 before its first.
  uint64_t LatestOf(int member) const { return line(member)->stamp.load(std::memory_order_acquire) & ~kWantsBell; }
  bool AllHavePut(uint64_t stamp, Share share = Share::kAll) const;
  bool HasPutAll(int member, uint64_t stamp) const {  // REQUIRES: HasPut
    return payload_is_in_line() || line(member)->behind.all_put.load(std::memory_order_acquire) == stamp;
  }
  // Prefetches the lines to which this member will soon put. The other members have read them, so without prefetching
  // the put would wait until their caches release the lines.
  void AskForLinesOf(int member) const;

  bool WantsBell(int member) const { return (line(member)->stamp.load(std::memory_order_relaxed) & kWantsBell) != 0; }
  // REQUIRES: this member has put, and no other thread changes its line.
  void AskForBell(int member) { line(member)->stamp.fetch_or(kWantsBell); }

  // This member of two has written its half of the result into the other's payload. REQUIRES: !payload_is_in_line().
  void StampFold(int member, uint64_t stamp) const {
    line(member)->behind.folded.store(stamp, std::memory_order_release);
  }
  bool HasStampedFold(int member, uint64_t stamp) const {
    return line(member)->behind.folded.load(std::memory_order_acquire) == stamp;
  }

  // ---- the result, behind the parts of the members
  static CellBuffer WithResult(std::byte* memory, int member_count, size_t payload_bytes, int self = 0) {
    CellBuffer buffer(memory, member_count, payload_bytes, self);
    buffer.has_result_ = true;
    return buffer;
  }
  static size_t BytesWithResult(int member_count, size_t payload_bytes) {
    return BytesFor(member_count + 1, payload_bytes);
  }
  std::byte* result() const { return payload_to_write(member_count_); }
  // Tells the members that the result of this use is complete; or that there will be none.
  void AnnounceResult(uint64_t stamp, bool is_given_up = false) const {
    line(member_count_)->stamp.store(is_given_up ? stamp | kGivenUp : stamp, std::memory_order_release);
  }
  bool HasResult(uint64_t stamp) const { return line(member_count_)->stamp.load(std::memory_order_acquire) == stamp; }
  bool HasGivenUp(uint64_t stamp) const { return HasResult(stamp | kGivenUp); }

  // The payload of a member.
  const std::byte* payload(int member) const {
    return memory_ + static_cast<size_t>(member) * stride_bytes_ + payload_offset_;
  }
  std::byte* payload_to_write(int member) const { return const_cast<std::byte*>(payload(member)); }
  int member_count() const { return member_count_; }
  // Returns whether the payload shares the line of the stamp, followed by zeros up to kInLineBytes.
  bool payload_is_in_line() const { return payload_offset_ == 0; }
  static constexpr size_t kInLineBytes = 56;

 private:
  struct FurtherStamps {  // of the last use of which the member has
    std::atomic<uint64_t> all_put;
    std::atomic<uint64_t> folded;
  };
  struct alignas(64) Line {
    union {
      std::byte payload[kInLineBytes];
      FurtherStamps behind;  // where the payload is behind the line
    };
    std::atomic<uint64_t> stamp;
  };
  static constexpr uint64_t kGivenUp = kWantsBell;   // in the stamp of the result
  static constexpr size_t kRestStepBytes = 8 << 10;  // of a rest, between two looks for the other member
  static size_t StrideOf(size_t payload_bytes);
  void CopyPart(int member, const CellTensor& tensor, size_t begin_byte, size_t end_byte);

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
