#include "reduce/integer_average.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace farandole {
namespace {

__extension__ typedef __int128 Int128;

// What `ranks` alike callers get: wide copies, their sum as int64, and its average.
template <class T>
std::vector<T> Average(DType dtype, const std::vector<std::vector<T>>& inputs, Scale scale) {
  const size_t count = inputs[0].size(), words = WideBytes(dtype, count) / sizeof(int64_t);
  std::vector<int64_t> sums(words, 0);
  for (const std::vector<T>& input : inputs) {
    std::vector<int64_t> wide(words);
    Widen(dtype, input.data(), count, wide.data());
    for (size_t i = 0; i < words; ++i) sums[i] += wide[i];
  }
  std::vector<T> averages(count);
  AverageOfWide(dtype, sums.data(), count, scale, averages.data());
  return averages;
}

template <class T>
void IsExact(DType dtype) {
  std::mt19937_64 random(7);
  for (size_t ranks = 1; ranks <= 5; ++ranks) {
    std::vector<std::vector<T>> inputs(ranks, std::vector<T>(67));
    for (auto& input : inputs) {
      for (size_t i = 0; i < input.size(); ++i) {
        input[i] = i == 0   ? std::numeric_limits<T>::max()
                   : i == 1 ? std::numeric_limits<T>::min()
                            : static_cast<T>(random());
      }
    }
    const std::vector<T> averages = Average(dtype, inputs, {1.0, static_cast<double>(ranks)});
    for (size_t i = 0; i < averages.size(); ++i) {
      Int128 sum = 0;
      for (const auto& input : inputs) sum += input[i];
      EXPECT_EQ(averages[i], static_cast<T>(sum / static_cast<Int128>(ranks))) << NameOf(dtype) << " " << i;
    }
    EXPECT_EQ(averages[0], std::numeric_limits<T>::max());
    EXPECT_EQ(averages[1], std::numeric_limits<T>::min());
  }
}

TEST(IntegerAverageTest, IsTheExactSumDividedAndTruncated) {
  IsExact<uint8_t>(DType::kUint8);
  IsExact<int8_t>(DType::kInt8);
  IsExact<uint16_t>(DType::kUint16);
  IsExact<int16_t>(DType::kInt16);
  IsExact<uint32_t>(DType::kUint32);
  IsExact<int32_t>(DType::kInt32);
  IsExact<uint64_t>(DType::kUint64);
  IsExact<int64_t>(DType::kInt64);
}

TEST(IntegerAverageTest, AFactorSaturates) {
  const std::vector<std::vector<int8_t>> inputs = {{100, -100, 5, -5}, {100, -100, 6, -6}};
  EXPECT_EQ(Average(DType::kInt8, inputs, {3.0, 2.0}), (std::vector<int8_t>{127, -128, 16, -16}));
  const std::vector<std::vector<uint64_t>> wide(3, {std::numeric_limits<uint64_t>::max(), 9});
  EXPECT_EQ(Average(DType::kUint64, wide, {2.0, 3.0}),
            (std::vector<uint64_t>{std::numeric_limits<uint64_t>::max(), 18}));
  EXPECT_EQ(Average(DType::kUint64, wide, {-1.0, 3.0}), (std::vector<uint64_t>{0, 0}));
}

}  // namespace
}  // namespace farandole
