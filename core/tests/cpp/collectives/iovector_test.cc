#include "collectives/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace farandole {
namespace {

TEST(IoVectorTest, RangesReadAndWriteAsIfTheTensorsWereOneVector) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<char>> inputs, outputs;
    std::vector<char> whole;
    for (size_t i = 0; i < 1 + random() % 6; ++i) {
      inputs.emplace_back(random() % 50);  // empty ones too
      for (char& value : inputs.back()) whole.push_back(value = static_cast<char>(random()));
      outputs.emplace_back(inputs.back().size(), 0);
    }
    std::vector<IoBuffer> buffers;
    for (size_t i = 0; i < inputs.size(); ++i)
      buffers.push_back({inputs[i].data(), outputs[i].data(), inputs[i].size()});
    const IoVector vector(&buffers);
    ASSERT_EQ(vector.size_bytes(), whole.size());
    for (size_t begin = 0; begin < whole.size();) {
      const size_t size = std::min<size_t>(1 + random() % 40, whole.size() - begin);
      std::vector<char> piece(size);
      vector.ReadInput(begin, size, piece.data());
      ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin)));
      if (const void* const direct = vector.Input(begin, size)) {
        ASSERT_EQ(std::memcmp(direct, piece.data(), size), 0);
      }
      vector.WriteOutput(begin, size, piece.data());
      begin += size;
    }
    EXPECT_EQ(inputs, outputs);
  }
}

// Copied with prefetching; the ends are not aligned to lines or pages.
TEST(IoVectorTest, VectorsBeyondTheCachesAreCopiedAsOthers) {
  std::vector<char> input((5 << 20) + 3), output(input.size()), piece(300'001);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<char>(i * 7919 >> 5);
  const std::vector<IoBuffer> buffers{{input.data(), output.data(), input.size()}};
  const IoVector vector(&buffers);
  for (size_t begin = 0; begin < input.size(); begin += piece.size()) {
    const size_t size = std::min(piece.size(), input.size() - begin);
    vector.ReadInput(begin, size, piece.data());
    vector.WriteOutput(begin, size, piece.data());
  }
  EXPECT_TRUE(output == input);
}

TEST(IoVectorTest, ARangeInOneTensorIsItsMemory) {
  char a[4], b[4];
  const std::vector<IoBuffer> buffers{{a, a, 4}, {b, b, 4}};
  const IoVector vector(&buffers);
  EXPECT_EQ(vector.Input(1, 3), a + 1);
  EXPECT_EQ(vector.Input(4, 4), b);
  EXPECT_EQ(vector.Input(3, 2), nullptr);
  EXPECT_EQ(vector.Input(0, 0), nullptr);
}

}  // namespace
}  // namespace farandole
