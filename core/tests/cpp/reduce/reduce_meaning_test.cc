// The meaning of Reduce, stated with numbers small enough to check by hand: order, rounding, scale, NaN, zeros, bool.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reduce/conversions.h"
#include "reduce/reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace farandole {
namespace {

// Repeats the numbers, so that both vectors and tails contain them.
constexpr size_t kCopies = 133;

template <class T>
T ReduceOne(DType dtype, ReduceOp reduce, const std::vector<T>& values, Scale scale = {}) {
  std::vector<std::vector<T>> buffers;
  std::vector<const void*> inputs;
  for (const T value : values) buffers.emplace_back(kCopies, value);
  for (const std::vector<T>& buffer : buffers) inputs.push_back(buffer.data());
  std::vector<T> output(kCopies);
  Reduce(dtype, reduce, inputs.data(), inputs.size(), kCopies, scale, output.data());
  for (const T& element : output) EXPECT_EQ(std::memcmp(&element, &output[0], sizeof(T)), 0);
  return output[0];
}

class ReduceMeaning : public ::testing::TestWithParam<int> {
 protected:
  ReduceMeaning() : before_(ActiveIsa()) { UseIsa(static_cast<Isa>(GetParam())); }
  ~ReduceMeaning() override { UseIsa(before_); }

 private:
  const Isa before_;
};

TEST_P(ReduceMeaning, SumsAreAddedInTheOrderOfTheTree) {
  constexpr float kBig = 16777216.0f;  // 2^24: adding 1 is lost, adding 2 is not
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {kBig, 1, 1}), kBig);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {1, 1, kBig}), kBig + 2);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {kBig, 0, 1, 1}), kBig + 2);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {kBig, 0, 0, 0, 1, 1}), kBig + 2);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {0, 0, 0, kBig, 1}), kBig);
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {kBig, 0, 0, 0, 0, 0, 0, 1, 1}), kBig);
}

TEST_P(ReduceMeaning, SixteenBitFloatsAreRoundedOnce) {
  // 2048 + 1 is a tie in float16. Rounding after each sum would give 2048 twice.
  const uint16_t big = FloatToFloat16(2048), one = FloatToFloat16(1);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kFloat16, ReduceOp::kSum, {big, one, one}), FloatToFloat16(2050));
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kFloat16, ReduceOp::kSum, {big, one, one, one, one, one}), FloatToFloat16(2052));
  const uint16_t wide = FloatToBfloat16(256), unit = FloatToBfloat16(1);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kBfloat16, ReduceOp::kSum, {wide, unit, unit}), FloatToBfloat16(258));
}

TEST_P(ReduceMeaning, AverageOfFloat16DoesNotOverflowOnTheWay) {
  const uint16_t large = FloatToFloat16(60000);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kFloat16, ReduceOp::kSum, {large, large, large}, {1, 3}), large);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kFloat16, ReduceOp::kSum, {large, large, large}), FloatToFloat16(INFINITY));
}

TEST_P(ReduceMeaning, FloatsAreMultipliedByOneFactor) {
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {1, 2}, {5, 7}), 3.0f * static_cast<float>(5.0 / 7.0));
  EXPECT_EQ(ReduceOne<double>(DType::kFloat64, ReduceOp::kSum, {1, 2}, {5, 7}), 3.0 * (5.0 / 7.0));
  EXPECT_EQ(ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {3}, {1, 7}), 3.0f * static_cast<float>(1.0 / 7.0));
}

TEST_P(ReduceMeaning, IntegerAverageOfFortyNineOnesIsOne) {
  EXPECT_EQ(ReduceOne<int32_t>(DType::kInt32, ReduceOp::kSum, std::vector<int32_t>(49, 1), {1, 49}), 1);
  EXPECT_EQ(ReduceOne<int64_t>(DType::kInt64, ReduceOp::kSum, std::vector<int64_t>(49, 1), {1, 49}), 1);
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kUint8, ReduceOp::kSum, std::vector<uint8_t>(49, 1), {1, 49}), 1);
}

TEST_P(ReduceMeaning, IntegerAverageTruncatesTowardZero) {
  EXPECT_EQ(ReduceOne<int32_t>(DType::kInt32, ReduceOp::kSum, {3, 4}, {1, 2}), 3);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kInt32, ReduceOp::kSum, {-3, -4}, {1, 2}), -3);
  EXPECT_EQ(ReduceOne<int8_t>(DType::kInt8, ReduceOp::kSum, {-7}, {1, 2}), -3);
  EXPECT_EQ(ReduceOne<int16_t>(DType::kInt16, ReduceOp::kSum, {-1, 0}, {1, 2}), 0);
}

TEST_P(ReduceMeaning, ScaledIntegersSaturate) {
  EXPECT_EQ(ReduceOne<int8_t>(DType::kInt8, ReduceOp::kSum, {100}, {2, 1}), 127);
  EXPECT_EQ(ReduceOne<int8_t>(DType::kInt8, ReduceOp::kSum, {-100}, {2, 1}), -128);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kUint16, ReduceOp::kSum, {7}, {-1, 1}), 0);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kInt32, ReduceOp::kSum, {1 << 30}, {1e9, 1}),
            std::numeric_limits<int32_t>::max());
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(ReduceOne<int64_t>(DType::kInt64, ReduceOp::kSum, {kMost}, {2, 1}), kMost);
  EXPECT_EQ(ReduceOne<int64_t>(DType::kInt64, ReduceOp::kSum, {kLeast}, {2, 1}), kLeast);
  EXPECT_EQ(ReduceOne<int64_t>(DType::kInt64, ReduceOp::kSum, {1}, {1, 0}), kMost);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kInt32, ReduceOp::kSum, {0}, {1, 0}), 0) << "0 / 0 is a NaN, which becomes 0";
}

TEST_P(ReduceMeaning, IntegersWrapBeforeTheyAreScaled) {
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kUint8, ReduceOp::kSum, {200, 100}), 44);
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kUint8, ReduceOp::kSum, {200, 100}, {1, 2}), 22);
  EXPECT_EQ(ReduceOne<int32_t>(DType::kInt32, ReduceOp::kSum, {std::numeric_limits<int32_t>::max(), 1}),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kUint16, ReduceOp::kProduct, {0xffff, 0xffff}), 1);
}

TEST_P(ReduceMeaning, MinAndMaxKeepANanWhereverItStands) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp reduce : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(ReduceOne<float>(DType::kFloat32, reduce, {nan, 1})));
    EXPECT_TRUE(std::isnan(ReduceOne<float>(DType::kFloat32, reduce, {1, nan})));
    EXPECT_TRUE(std::isnan(ReduceOne<float>(DType::kFloat32, reduce, {1, 2, 3, 4, -nan, INFINITY, -INFINITY})));
    EXPECT_TRUE(std::isnan(ReduceOne<double>(DType::kFloat64, reduce, {-INFINITY, static_cast<double>(nan)})));
  }
}

TEST_P(ReduceMeaning, MinusZeroIsLessThanZero) {
  for (const std::vector<float>& zeros : {std::vector<float>{-0.0f, 0.0f}, std::vector<float>{0.0f, -0.0f}}) {
    EXPECT_TRUE(std::signbit(ReduceOne<float>(DType::kFloat32, ReduceOp::kMin, zeros)));
    EXPECT_FALSE(std::signbit(ReduceOne<float>(DType::kFloat32, ReduceOp::kMax, zeros)));
  }
}

TEST_P(ReduceMeaning, AComputedNanIsTheQuietOneWithoutPayload) {
  constexpr uint32_t kQuiet = 0x7fc00000u;
  EXPECT_EQ(ReduceOne<uint32_t>(DType::kFloat32, ReduceOp::kSum, {0xffc12345u, 0x7fa00001u}), kQuiet);
  EXPECT_EQ(ReduceOne<uint32_t>(DType::kFloat32, ReduceOp::kSum, {0x7f800000u, 0xff800000u}), kQuiet) << "inf - inf";
  EXPECT_EQ(ReduceOne<uint32_t>(DType::kFloat32, ReduceOp::kMax, {0xffffffffu, 0u}), kQuiet);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kFloat16, ReduceOp::kSum, {0xfc01u, 0u}), 0x7e00u);
  EXPECT_EQ(ReduceOne<uint16_t>(DType::kBfloat16, ReduceOp::kSum, {0xffffu, 0u}), 0x7fc0u);
}

TEST_P(ReduceMeaning, BoolSumIsOrAndProductIsAndWhateverTheScale) {
  for (const Scale scale : {Scale{}, Scale{1, 2}}) {
    EXPECT_EQ(ReduceOne<uint8_t>(DType::kBool, ReduceOp::kSum, {0, 1, 1}, scale), 1);
    EXPECT_EQ(ReduceOne<uint8_t>(DType::kBool, ReduceOp::kMax, {0, 0, 0}, scale), 0);
    EXPECT_EQ(ReduceOne<uint8_t>(DType::kBool, ReduceOp::kProduct, {1, 1, 0, 1, 1}, scale), 0);
    EXPECT_EQ(ReduceOne<uint8_t>(DType::kBool, ReduceOp::kMin, {1, 1}, scale), 1);
  }
}

TEST_P(ReduceMeaning, BoolsThatAreNotOneCountAsTrue) {
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kBool, ReduceOp::kProduct, {1, 2}), 1);
  EXPECT_EQ(ReduceOne<uint8_t>(DType::kBool, ReduceOp::kSum, {0x80}), 1);
}

#if defined(__x86_64__)
TEST_P(ReduceMeaning, FlushToZeroOfTheThreadDoesNotMatterInsideFloatingPointScope) {
  constexpr unsigned kFlushToZeroAndDenormalsAreZero = 0x8040;
  const float tiny = std::numeric_limits<float>::denorm_min();
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushToZeroAndDenormalsAreZero);
  const float flushed = ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {tiny, tiny});
  uint32_t kept_bits;
  {
    const FloatingPointScope ieee;
    const float kept = ReduceOne<float>(DType::kFloat32, ReduceOp::kSum, {tiny, tiny});
    std::memcpy(&kept_bits, &kept, sizeof(kept_bits));
  }
  const unsigned restored = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(flushed, 0.0f) << "the test must be able to fail";
  EXPECT_EQ(kept_bits, 2u);
  EXPECT_EQ(restored & kFlushToZeroAndDenormalsAreZero, kFlushToZeroAndDenormalsAreZero);
}
#endif

std::string IsaName(const ::testing::TestParamInfo<int>& info) {
  static const char* const kNames[] = {"portable", "avx2", "avx512"};
  return kNames[info.param];
}
INSTANTIATE_TEST_SUITE_P(Isas, ReduceMeaning, ::testing::Range(0, static_cast<int>(BestIsa()) + 1), IsaName);

TEST(Supports, EverythingButTheAverageOfBoolAndAdasumOfWholeNumbers) {
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    if (IsComplex(dtype)) {
      EXPECT_TRUE(Supports(dtype, ReduceOp::kSum) && Supports(dtype, ReduceOp::kAverage)) << NameOf(dtype);
      EXPECT_FALSE(Supports(dtype, ReduceOp::kMin) || Supports(dtype, ReduceOp::kProduct)) << NameOf(dtype);
      continue;
    }
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      EXPECT_TRUE(Supports(dtype, op)) << NameOf(dtype) << " " << NameOf(op);
    }
    EXPECT_EQ(Supports(dtype, ReduceOp::kAverage), dtype != DType::kBool) << NameOf(dtype);
    EXPECT_EQ(Supports(dtype, ReduceOp::kAdasum), IsFloating(dtype)) << NameOf(dtype);
  }
}

TEST(Isa, TheBestIsUsedUnlessToldOtherwise) { EXPECT_EQ(ActiveIsa(), BestIsa()); }

}  // namespace
}  // namespace farandole
