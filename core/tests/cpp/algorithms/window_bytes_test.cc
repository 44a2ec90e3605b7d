#include "algorithms/partition.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace farandole {
namespace {

TEST(WindowBytes, AChunkKeepsItsLimit) {
  for (int block_count : {1, 2, 3, 7, 64, 100000}) {
    const size_t window_bytes = DefaultWindowBytes(block_count);
    EXPECT_EQ(window_bytes % kBorderBytes, 0u);
    EXPECT_TRUE(window_bytes * static_cast<size_t>(block_count) <= 1 << 20 || window_bytes == kBorderBytes);
  }
}

TEST(WindowBytes, WindowsAreEvenSoTheLastOneIsNotShort) {
  for (size_t block_bytes :
       {size_t{1}, size_t{64}, size_t{65}, size_t{1000}, (size_t{1} << 19) + 100, size_t{10000019}}) {
    for (size_t max_bytes : {size_t{64}, size_t{4096}, size_t{256} << 10}) {
      const size_t window_bytes = EvenWindowBytes(block_bytes, max_bytes);
      const size_t windows = (block_bytes + window_bytes - 1) / window_bytes;
      EXPECT_EQ(window_bytes % kBorderBytes, 0u);
      EXPECT_LE(window_bytes, max_bytes);
      EXPECT_LE(windows, (block_bytes + max_bytes - 1) / max_bytes);
      EXPECT_LE(windows * window_bytes - block_bytes, windows * kBorderBytes);
    }
  }
}

TEST(WindowBytes, NothingHasAWindowToo) { EXPECT_GT(EvenWindowBytes(0, 4096), 0u); }

}  // namespace
}  // namespace farandole
