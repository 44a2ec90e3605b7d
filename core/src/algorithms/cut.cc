#include "algorithms/cut.h"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The least multiple of `unit` that cuts `total` to as many pieces as `most` would, so that the last piece is not a
// sliver. REQUIRES: total > 0.
int64_t EvenPiece(int64_t total, int64_t most, int64_t unit) {
  const int64_t pieces = DivideUp(total, std::max(most / unit, int64_t{1}) * unit);
  return DivideUp(DivideUp(total, pieces), unit) * unit;
}

}  // namespace

size_t DefaultChunkBytes(int block_count) {
  constexpr size_t kBlockBytes = 256 << 10, kMostBytes = 1 << 20;
  return std::min(kMostBytes, block_count * kBlockBytes);
}

Cut Cut::OfElements(int64_t element_count, size_t element_bytes, int block_count, size_t chunk_bytes) {
  Cut cut;
  if (element_count == 0) return cut;
  if (chunk_bytes == 0) chunk_bytes = DefaultChunkBytes(block_count);
  cut.element_count_ = element_count;
  cut.element_bytes_ = static_cast<int64_t>(element_bytes);
  cut.block_count_ = block_count;
  const int64_t unit = kBorderBytes / cut.element_bytes_ * block_count;
  cut.chunk_elements_ = EvenPiece(element_count, static_cast<int64_t>(chunk_bytes) / cut.element_bytes_, unit);
  cut.chunk_count_ = DivideUp(element_count, cut.chunk_elements_);
  cut.largest_block_bytes_ = cut.chunk_elements_ / block_count * element_bytes;
  return cut;
}

Cut Cut::OfBlocks(std::vector<Range> blocks, size_t chunk_bytes) {
  Cut cut;
  int64_t longest = 0;
  for (const Range& block : blocks) longest = std::max(longest, block.size());
  if (longest == 0) return cut;
  if (chunk_bytes == 0) chunk_bytes = DefaultChunkBytes(static_cast<int>(blocks.size()));
  const int64_t most = static_cast<int64_t>(chunk_bytes) / static_cast<int64_t>(blocks.size());
  cut.window_bytes_ = EvenPiece(longest, most, kBorderBytes);
  cut.chunk_count_ = DivideUp(longest, cut.window_bytes_);
  cut.largest_block_bytes_ = cut.window_bytes_;
  cut.blocks_ = std::move(blocks);
  return cut;
}

Range Cut::Bytes(int64_t chunk, int block) const {
  if (!blocks_.empty()) {
    const Range& whole = blocks_[block];
    const auto border = [&](int64_t window) { return std::min(whole.end, whole.begin + window * window_bytes_); };
    return {border(chunk), border(chunk + 1)};
  }
  const int64_t first = chunk * chunk_elements_;
  const int64_t count = std::min(chunk_elements_, element_count_ - first);
  const Range range = BlockRange(count, element_bytes_, block, block_count_);
  return {(first + range.begin) * element_bytes_, (first + range.end) * element_bytes_};
}

}  // namespace farandole
