#include "controller/spans.h"

namespace farandole {
namespace {

int64_t Rounded(int64_t size_bytes) {
  int64_t rounded = kSpanAlignment;
  while (rounded < size_bytes) rounded *= 2;
  return rounded;
}

}  // namespace

SpanAllocator::SpanAllocator(int64_t capacity_bytes) {
  int64_t block = kSpanAlignment;
  while (block <= capacity_bytes / 2) block *= 2;
  // Largest first, so that each block starts at a multiple of its size.
  for (int64_t offset = 0; block >= kSpanAlignment; block /= 2) {
    if (offset + block > capacity_bytes) continue;
    free_[block].insert(offset);
    offset += block;
  }
}

int64_t SpanAllocator::Take(int64_t size_bytes) {
  if (size_bytes <= 0 || free_.empty() || size_bytes > free_.rbegin()->first) return -1;
  const int64_t wanted = Rounded(size_bytes);
  auto fitting = free_.lower_bound(wanted);
  while (fitting != free_.end() && fitting->second.empty()) ++fitting;
  if (fitting == free_.end()) return -1;
  int64_t block = fitting->first;
  const int64_t offset = *fitting->second.begin();
  fitting->second.erase(fitting->second.begin());
  while (block > wanted) {
    block /= 2;
    free_[block].insert(offset + block);
  }
  return offset;
}

void SpanAllocator::GiveBack(int64_t offset, int64_t size_bytes) {
  if (offset < 0) return;
  int64_t block = Rounded(size_bytes);
  while (free_[block].erase(offset ^ block) > 0) {
    offset &= ~block;
    block *= 2;
  }
  free_[block].insert(offset);
}

}  // namespace farandole
