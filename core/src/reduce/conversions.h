// Conversions of elements: float16 (IEEE 754 binary16) and bfloat16 to and from float32, and double to integers.
//
// C++17 has no 16-bit float, so both are stored in a uint16_t. Narrowing rounds to nearest even; subnormals and
// infinities are exact; a NaN stays a NaN, becomes quiet and keeps its sign and as much of its payload as fits. The
// templates work on one value or on a vector of values (GCC's vector_size), so scalar and vector code give the same
// bits. Results are the same on a processor that flushes subnormals to zero. Pure functions; any thread may call them.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

// Functions on vectors must be inlined: how a call passes vectors depends on the instruction set of each side.
#define FRD_INLINE inline __attribute__((always_inline))

namespace farandole {
namespace half_internal {

template <class To, class From>
FRD_INLINE To Reinterpret(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "reinterpreting keeps the size");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// Bits is uint32_t or a vector of it, Float the float or vector of float of the same size. A signalling NaN stays
// signalling.
template <class Float, class Bits>
FRD_INLINE Float WidenFloat16(Bits half) {
  constexpr uint32_t kRebias = (127u - 15u) << 23;
  const Bits magnitude = half & 0x7fffu;
  // Subnormals count units of 2^-24, the last place of a float32 in [0.5, 1).
  const Float counted = Reinterpret<Float>(magnitude | 0x3f000000u) - 0.5f;
  const Bits normal = (magnitude << 13) + kRebias;
  const Bits beyond = (magnitude << 13) + 2 * kRebias;  // infinity and NaN have the highest exponent in both types
  const Bits large = magnitude < 0x7c00u ? normal : beyond;
  const Bits widened = magnitude < 0x0400u ? Reinterpret<Bits>(counted) : large;
  return Reinterpret<Float>(widened | ((half & 0x8000u) << 16));
}

template <class Float, class Bits>
FRD_INLINE Bits NarrowFloat16(Float value) {
  const Bits bits = Reinterpret<Bits>(value);
  const Bits magnitude = bits & 0x7fffffffu;
  // Adding 0.5 rounds a float32 below 2^-14 to units of 2^-24; the last bits of the sum are their number.
  const Bits counted = Reinterpret<Bits>(Reinterpret<Float>(magnitude) + 0.5f) - 0x3f000000u;
  const Bits odd = (magnitude >> 13) & 1u;
  const Bits rounded =
      (magnitude - ((127u - 15u) << 23) + 0xfffu + odd) >> 13;  // a carry moves into the exponent, as it should
  const Bits quiet = ((magnitude >> 13) & 0x03ffu) | 0x7e00u;
  const Bits finite = magnitude < 0x38800000u ? counted : rounded;
  const Bits ordered = magnitude < 0x477ff000u ? finite : (magnitude & 0u) + 0x7c00u;  // from 65520 on: infinity
  const Bits narrowed = magnitude > 0x7f800000u ? quiet : ordered;
  return narrowed | ((bits >> 16) & 0x8000u);
}

// The upper 16 bits of the result are a bfloat16; the lower ones have no meaning. REQUIRES: no NaN whose lower bits
// would carry into the sign; the quiet NaN 0x7fc00000 is fine.
template <class Bits>
FRD_INLINE Bits RoundToUpperHalf(Bits bits) {
  return bits + 0x7fffu + ((bits >> 16) & 1u);
}

inline float Quiet(uint32_t bits) {
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return Reinterpret<float>(is_nan ? bits | 0x00400000u : bits);
}

}  // namespace half_internal

inline float Float16ToFloat(uint16_t half) {
  const float widened = half_internal::WidenFloat16<float, uint32_t>(half);
  return half_internal::Quiet(half_internal::Reinterpret<uint32_t>(widened));
}
inline uint16_t FloatToFloat16(float value) {
  return static_cast<uint16_t>(half_internal::NarrowFloat16<float, uint32_t>(value));
}
inline float Bfloat16ToFloat(uint16_t half) { return half_internal::Quiet(static_cast<uint32_t>(half) << 16); }
inline uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = half_internal::Reinterpret<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x0040u : half_internal::RoundToUpperHalf(bits) >> 16);
}

// Rounds toward zero. A value that does not fit becomes the nearest one that does, and a NaN becomes 0. The code has no
// branches, so the compiler can vectorize it.
template <class T>
FRD_INLINE T Truncate(double value) {
  // Both limits are exact in double; kAbove is the first whole number that does not fit.
  constexpr double kLowest = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kAbove = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2.0;
  const bool below = value <= kLowest;
  const bool above = value >= kAbove;
  const bool fits = value > kLowest && value < kAbove;
  const T truncated = static_cast<T>(fits ? value : 0.0);
  return below ? std::numeric_limits<T>::min() : above ? std::numeric_limits<T>::max() : truncated;
}

}  // namespace farandole
