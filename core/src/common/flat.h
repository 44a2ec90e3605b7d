// Flat allreduce: every member puts its whole input into memory that all members see, and everybody folds everything.
//
// It moves n times the bytes that a reduce-scatter would, but needs one wait: for small payloads that is all that
// counts. Two halves are used in turns; this is one of them:
//
//   member 0   [ payload up to 56 bytes | sequence ] [ larger payload ...            ]
//   member 1   [ payload up to 56 bytes | sequence ] [ larger payload ...            ]
//
// A small payload and its sequence number share a cache line, so one line has to cross between two members and no more.
//
// Uses are numbered 1, 2, 3 ... and use k lies in half k mod 2. Why no more signals are needed:
// - A member reads what others have put after it saw their sequence number k, which they stored last (release and
//   acquire).
// - It overwrites its part of a half with use k + 2. It does so after use k + 1, in which it saw that all had put
//   k + 1, and nobody puts k + 1 before it has read all of use k: the reads come before the writes.
// So a member's sequence number in a half is k or k - 2 while somebody waits for k, never more.
//
// Thread rule: a value that points at memory; per member one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/reduce.h"

namespace farandole {

// A tensor of the payload. A null input reads as zeros, a result for a null output is dropped.
struct FlatSegment {
  const void* input = nullptr;
  void* output = nullptr;  // may be the input
  DType dtype = DType::kFloat32;
  size_t element_count = 0;
  size_t size_bytes() const { return element_count * SizeOf(dtype); }
};

class FlatHalf {
 public:
  // A bit of the sequence word: this member may sleep, so whoever comes last has to ring its bell.
  static constexpr uint64_t kWantsBell = uint64_t{1} << 63;
  static constexpr int kMostMembers = 64;

  static size_t BytesFor(int member_count, size_t payload_bytes);

  // REQUIRES: `memory` is aligned to a cache line, was zero or cleared before the first use, and has BytesFor(...)
  // bytes; member_count <= kMostMembers; the payload is as large for all members and uses.
  FlatHalf(std::byte* memory, int member_count, size_t payload_bytes);

  // For other uses than those before. Some thread may still look whether an operation is ready that has ended
  // meanwhile.
  void Clear();
  // REQUIRES: this member has folded the use before.
  void Put(int member, const FlatSegment* segments, size_t segment_count, uint64_t sequence, bool wants_bell = false);
  bool HasPut(int member, uint64_t sequence) const { return LatestOf(member) == sequence; }
  // What the member put last in this half; 0 before its first.
  uint64_t LatestOf(int member) const { return line(member)->sequence.load(std::memory_order_acquire) & ~kWantsBell; }
  bool AllHavePut(uint64_t sequence) const;
  // Folds all members' segments in order R into the outputs. Member `reader`, unless it is -1, reads its own inputs
  // where they are instead of what it has put: lines that others have read may have gone there (64 KB take 2.1 us, not
  // 5.1). REQUIRES: AllHavePut; the reader's inputs are as they were put; an IEEE environment as FloatingPointScope
  // makes it.
  void Fold(ReduceOp reduce, Scale scale, const FlatSegment* segments, size_t segment_count, int reader = -1) const;

  // This member will put here before long. Others have read its lines, so the put would have to wait for them.
  void AskForLinesOf(int member) const;

  bool WantsBell(int member) const {
    return (line(member)->sequence.load(std::memory_order_relaxed) & kWantsBell) != 0;
  }
  // REQUIRES: this member has put, and no other thread changes its line.
  void AskForBell(int member) { line(member)->sequence.fetch_or(kWantsBell); }

 private:
  static constexpr size_t kInLineBytes = 56;
  struct alignas(64) Line {
    std::byte payload[kInLineBytes];
    std::atomic<uint64_t> sequence;
  };
  static size_t StrideOf(size_t payload_bytes);

  Line* line(int member) const {
    return reinterpret_cast<Line*>(memory_ + static_cast<size_t>(member) * stride_bytes_);
  }
  std::byte* payload(int member) const {
    return memory_ + static_cast<size_t>(member) * stride_bytes_ + payload_offset_;
  }

  std::byte* memory_;
  size_t stride_bytes_;
  size_t payload_offset_;
  int member_count_;
};

}  // namespace farandole
