// Small pieces of the board's span memory: what an operation wants of it, on which all ranks must be of one mind, and
// who gives it out, in powers of two: the coordinator alone. Pure.
//
// Buddies: a block is halved until it is small enough, and a half that comes back joins its other half as soon as that
// is free too. So however the memory was cut before, all of it fits everything again once all of it is back.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "controller/signature.h"
#include "world/process_set.h"

namespace farandole {

inline constexpr int64_t kSpanAlignment = 256;  // and the smallest

// Whether a small operation is nevertheless faster without a span, on a machine whose cores have second-level caches of
// this size (0: not known). The coordinator alone asks, so that all ranks do the same.
bool IsBetterStaged(const Signature& signature, const ProcessSet& set, int64_t second_level_cache_bytes);

// Small operations: those whose path is cells (algorithms/choose_path.h).
bool IsSmall(const Signature& signature, const ProcessSet& set);

// Bytes of span that an operation wants, two halves: the extents of all positions, or the data of a small one. 0 when
// it wants none.
int64_t WantedSpanBytes(const Signature& signature, const ProcessSet& set);

class SpanAllocator {
 public:
  explicit SpanAllocator(int64_t capacity_bytes);

  // Offset of at least size_bytes, or -1 when there is no room (the operation then does without) or size_bytes is 0.
  int64_t Take(int64_t size_bytes);
  // REQUIRES: offset came from Take(size_bytes).
  void GiveBack(int64_t offset, int64_t size_bytes);

 private:
  std::map<int64_t, std::set<int64_t>> free_;  // size, a power of two -> offsets, multiples of the size
};

}  // namespace farandole
