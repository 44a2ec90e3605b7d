#include "controller/spans.h"

namespace farandole {
namespace {

constexpr int64_t kSmallestBytes = 256;

int64_t Rounded(int64_t size_bytes) {
  int64_t rounded = kSmallestBytes;
  while (rounded < size_bytes) rounded *= 2;
  return rounded;
}

}  // namespace

int64_t SpanAllocator::Take(int64_t size_bytes) {
  if (size_bytes <= 0 || size_bytes > capacity_bytes_) return -1;
  const int64_t rounded = Rounded(size_bytes);
  std::vector<int64_t>& returned = returned_[rounded];
  if (!returned.empty()) {
    const int64_t offset = returned.back();
    returned.pop_back();
    return offset;
  }
  if (fresh_ + rounded > capacity_bytes_) return -1;
  fresh_ += rounded;
  return fresh_ - rounded;
}

void SpanAllocator::GiveBack(int64_t offset, int64_t size_bytes) {
  if (offset >= 0) returned_[Rounded(size_bytes)].push_back(offset);
}

}  // namespace farandole
