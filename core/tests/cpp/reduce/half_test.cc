#include "reduce/conversions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>

#include "reduce/half_oracle.h"

namespace farandole {
namespace {

using tests::Bfloat16Oracle;
using tests::Float16Oracle;
using tests::HalfOracle;

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

struct Type {
  const char* name;
  const HalfOracle& (*oracle)();
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

const Type kTypes[] = {{"float16", Float16Oracle, Float16ToFloat, FloatToFloat16},
                       {"bfloat16", Bfloat16Oracle, Bfloat16ToFloat, FloatToBfloat16}};

class Half : public ::testing::TestWithParam<Type> {
 protected:
  const HalfOracle& oracle() const { return GetParam().oracle(); }
};

TEST_P(Half, EveryCodeWidensToItsValue) {
  for (uint32_t code = 0; code <= 0xffffu; ++code) {
    const float value = GetParam().widen(static_cast<uint16_t>(code));
    if (oracle().IsNan(static_cast<uint16_t>(code))) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << code;
    } else {
      ASSERT_EQ(BitsOf(value), BitsOf(static_cast<float>(oracle().Decode(static_cast<uint16_t>(code)))))
          << std::hex << code;
    }
  }
}

TEST_P(Half, EveryCodeSurvivesTheRoundTripAndNanBecomesQuiet) {
  for (uint32_t code = 0; code <= 0xffffu; ++code) {
    const bool is_nan = oracle().IsNan(static_cast<uint16_t>(code));
    ASSERT_EQ(GetParam().narrow(GetParam().widen(static_cast<uint16_t>(code))),
              is_nan ? code | oracle().QuietBit() : code);
  }
}

TEST_P(Half, WideningMakesNanQuiet) {
  const uint16_t signalling = static_cast<uint16_t>(oracle().InfinityCode() | 1u);
  EXPECT_NE(BitsOf(GetParam().widen(signalling)) & 0x00400000u, 0u);
}

TEST_P(Half, NarrowingTakesTheNearestAndTheEvenOneOfTwo) {
  // Around every finite value and every midpoint between neighbours, where the rounding changes.
  for (uint32_t code = 0; code + 1 < oracle().InfinityCode(); ++code) {
    const double value = oracle().Decode(static_cast<uint16_t>(code));
    const double next = oracle().Decode(static_cast<uint16_t>(code + 1));
    for (const double at : {value, (value + next) / 2}) {
      const float centre = static_cast<float>(at);
      for (const float near : {std::nextafterf(centre, 0), centre, std::nextafterf(centre, 1e38f)}) {
        ASSERT_EQ(GetParam().narrow(near), oracle().Encode(near)) << BitsOf(near);
        ASSERT_EQ(GetParam().narrow(-near), oracle().Encode(-near)) << BitsOf(near);
      }
    }
  }
}

TEST_P(Half, NarrowingOverflowsToInfinityFromTheMidpointOn) {
  const uint16_t largest = static_cast<uint16_t>(oracle().InfinityCode() - 1u);
  const double last = oracle().Decode(largest);
  const double before = oracle().Decode(static_cast<uint16_t>(largest - 1u));
  const float midpoint = static_cast<float>(last + (last - before) / 2);
  EXPECT_EQ(GetParam().narrow(std::nextafterf(midpoint, 0)), largest);
  EXPECT_EQ(GetParam().narrow(midpoint), oracle().InfinityCode());
  EXPECT_EQ(GetParam().narrow(std::numeric_limits<float>::max()), oracle().InfinityCode());
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::infinity()), 0x8000u | oracle().InfinityCode());
}

TEST_P(Half, NarrowingUnderflowsToZeroOfTheSameSign) {
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::denorm_min()), 0x8000u);
  EXPECT_EQ(GetParam().narrow(std::numeric_limits<float>::denorm_min()), 0u);
}

TEST_P(Half, NarrowingKeepsNanWhateverItsPayload) {
  for (const uint32_t bits : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const uint16_t code = GetParam().narrow(FloatOf(bits));
    EXPECT_TRUE(oracle().IsNan(code)) << std::hex << bits;
    EXPECT_NE(code & oracle().QuietBit(), 0) << std::hex << bits;
    EXPECT_EQ(code & 0x8000u, (bits >> 16) & 0x8000u) << std::hex << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Half, ::testing::ValuesIn(kTypes), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace farandole
