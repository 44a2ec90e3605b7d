// Gives out pieces of the span memory, in powers of two. The coordinator alone asks. Pure.
//
// Buddies: a block is halved until it is small enough, and a half that comes back joins its other half as soon as that
// is free too. So however the memory was cut before, all of it fits everything again once all of it is back.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "controller/messages.h"

namespace farandole {

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
