#include "algorithms/partition.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(ChunkMap, ElementsAreCoveredOnceInOrder) {
  for (int64_t count : {1, 2, 63, 64, 65, 1000, 16384, 16385, 1000003}) {
    for (size_t element_bytes : {1, 2, 4, 8}) {
      for (int block_count : {1, 2, 3, 7}) {
        for (size_t chunk_bytes : {1, 4096, 100000, 1 << 20}) {
          const ChunkMap cut = ChunkMap::OfElements(count, element_bytes, block_count, chunk_bytes);
          int64_t at = 0;
          for (int64_t chunk = 0; chunk < cut.chunk_count(); ++chunk) {
            for (int block = 0; block < block_count; ++block) {
              const Range bytes = cut.Bytes(chunk, block);
              ASSERT_EQ(bytes.begin, at);
              ASSERT_LE(bytes.size(), static_cast<int64_t>(cut.largest_block_bytes()));
              at = bytes.end;
            }
          }
          ASSERT_EQ(at, count * static_cast<int64_t>(element_bytes));
        }
      }
    }
  }
}

TEST(ChunkMap, AChunkKeepsItsLimit) {
  const ChunkMap cut = ChunkMap::OfElements(10000000, 4, 3, 1 << 20);
  for (int64_t chunk = 0; chunk < cut.chunk_count(); ++chunk) {
    EXPECT_LE(cut.Bytes(chunk, 2).end - cut.Bytes(chunk, 0).begin, 1 << 20);
  }
}

TEST(ChunkMap, ChunksAreEvenSoTheLastOneIsNotShort) {
  const ChunkMap cut = ChunkMap::OfElements((1 << 18) + 100, 4, 2, 1 << 20);  // a chunk of 1 MB and 400 bytes
  EXPECT_EQ(cut.chunk_count(), 2);
  EXPECT_NEAR(cut.Bytes(0, 1).end, 1 << 19, 512);
}

TEST(ChunkMap, GivenBlocksAreCoveredWindowByWindow) {
  const std::vector<Range> blocks = {{100, 5000}, {5000, 5000}, {6000, 6001}, {10000, 30000}};
  for (size_t chunk_bytes : {1, 1000, 1 << 20}) {
    const ChunkMap cut = ChunkMap::OfBlocks(blocks, chunk_bytes);
    for (int b = 0; b < 4; ++b) {
      int64_t at = blocks[b].begin;
      for (int64_t chunk = 0; chunk < cut.chunk_count(); ++chunk) {
        const Range bytes = cut.Bytes(chunk, b);
        EXPECT_TRUE(bytes.size() == 0 || bytes.begin == at);
        EXPECT_LE(bytes.size(), static_cast<int64_t>(cut.largest_block_bytes()));
        at += bytes.size();
      }
      EXPECT_EQ(at, blocks[b].end);
    }
  }
}

TEST(ChunkMap, NothingHasNoChunks) {
  EXPECT_EQ(ChunkMap().chunk_count(), 0);
  EXPECT_EQ(ChunkMap::OfElements(0, 4, 3, 4096).chunk_count(), 0);
  EXPECT_EQ(ChunkMap::OfBlocks({{7, 7}, {7, 7}}, 4096).chunk_count(), 0);
}

}  // namespace
}  // namespace farandole
