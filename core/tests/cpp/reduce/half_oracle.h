// float16 and bfloat16 by their definition, for tests: values are computed with ldexp, and a number is rounded by
// looking for its neighbours among all values of the type. Shares nothing with reduce/conversions.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace farandole::tests {

class HalfOracle {
 public:
  // float16 has 5 and 10 bits, bfloat16 has 8 and 7.
  HalfOracle(int exponent_bits, int mantissa_bits) : exponent_bits_(exponent_bits), mantissa_bits_(mantissa_bits) {
    for (uint32_t code = 0; code < InfinityCode(); ++code) magnitudes_.push_back(Magnitude(code));
  }

  uint16_t InfinityCode() const { return static_cast<uint16_t>(((1u << exponent_bits_) - 1u) << mantissa_bits_); }
  uint16_t QuietBit() const { return static_cast<uint16_t>(1u << (mantissa_bits_ - 1)); }
  bool IsNan(uint16_t code) const { return (code & 0x7fffu) > InfinityCode(); }

  double Decode(uint16_t code) const {
    if (IsNan(code)) return std::numeric_limits<double>::quiet_NaN();
    const uint32_t magnitude_code = code & 0x7fffu;
    const double magnitude =
        magnitude_code == InfinityCode() ? std::numeric_limits<double>::infinity() : magnitudes_[magnitude_code];
    return (code & 0x8000u) != 0 ? -magnitude : magnitude;
  }

  // The nearest code, the even one of two equally near. REQUIRES: not a NaN.
  uint16_t Encode(double value) const {
    const uint16_t sign = std::signbit(value) ? 0x8000u : 0u;
    const double magnitude = std::fabs(value);
    const size_t above =
        static_cast<size_t>(std::lower_bound(magnitudes_.begin(), magnitudes_.end(), magnitude) - magnitudes_.begin());
    if (above == 0) return sign;
    const size_t below = above - 1;
    // For rounding, infinity is the code after the largest finite value.
    const double next =
        above < magnitudes_.size() ? magnitudes_[above] : 2 * magnitudes_[below] - magnitudes_[below - 1];
    const double to_below = magnitude - magnitudes_[below];
    const double to_next = next - magnitude;
    const bool take_below = to_below < to_next || (to_below == to_next && below % 2 == 0);
    return static_cast<uint16_t>(sign | (take_below ? below : above));
  }

 private:
  double Magnitude(uint32_t code) const {
    const int bias = (1 << (exponent_bits_ - 1)) - 1;
    const int exponent = static_cast<int>(code >> mantissa_bits_);
    const uint32_t mantissa = code & ((1u << mantissa_bits_) - 1u);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits_);
    return std::ldexp(mantissa + (1u << mantissa_bits_), exponent - bias - mantissa_bits_);
  }

  const int exponent_bits_;
  const int mantissa_bits_;
  std::vector<double> magnitudes_;  // of the codes from 0 to the largest finite one; ascending
};

inline const HalfOracle& Float16Oracle() {
  static const HalfOracle oracle(5, 10);
  return oracle;
}
inline const HalfOracle& Bfloat16Oracle() {
  static const HalfOracle oracle(8, 7);
  return oracle;
}

}  // namespace farandole::tests
