// Small pieces of the board's span memory, in powers of two, given out and taken back by the coordinator alone. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace farandole {

class SpanAllocator {
 public:
  explicit SpanAllocator(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Offset of at least size_bytes, or -1 when there is no room (the operation then does without) or size_bytes is 0.
  int64_t Take(int64_t size_bytes);
  // REQUIRES: offset came from Take(size_bytes).
  void GiveBack(int64_t offset, int64_t size_bytes);

 private:
  int64_t capacity_bytes_;
  int64_t fresh_ = 0;
  std::map<int64_t, std::vector<int64_t>> returned_;  // by rounded size
};

}  // namespace farandole
