// Vectors, operations on them, and how elements lie in memory, for the loops of kernels.h.
//
// Each <instruction set>.cc includes it once, after it has set the compiler's target and kVectorBytes. Everything
// stands in an unnamed namespace: with external names the linker would keep one copy of every template, perhaps the
// AVX-512 one, for all instruction sets.
//
// These functions fix what IEEE 754 or the hardware leave open, so that all instruction sets give the same bits: a NaN
// that was computed is stored as the positive quiet NaN without payload (which of two payloads survives depends on how
// the compiler placed the operands), and -0 counts as less than +0 in min and max.
//
// REQUIRES: the including file has included isa.h. Pure functions; any thread may call them.
#pragma once

// Included here, not earlier: clang requires that the target is set before functions on wide vectors are defined.
#include "reduce/conversions.h"

namespace farandole {
namespace {

template <class Element>
struct VectorOf {
  typedef Element type __attribute__((vector_size(kVectorBytes)));
};
template <class Element>
using Vector = typename VectorOf<Element>::type;

// Each step of a loop reduces two vectors. One vector of 16-bit floats in memory widens to a Pair of float32 vectors.
template <class Element>
struct Pair {
  Vector<Element> first;
  Vector<Element> second;
};
template <class Element>
constexpr size_t kStepElements = 2 * kVectorBytes / sizeof(Element);

template <class V>
FRD_INLINE V LoadVector(const char* from) {
  V value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <class V>
FRD_INLINE void StoreVector(V value, char* to) {
  std::memcpy(to, &value, sizeof(value));
}

// ---- codecs: how elements lie in memory, and the type in which they are reduced (Element)
//
// kPadded: the memory is a block of kernels.h and holds whole steps, so a loop may read and write behind the last
// element.

template <class T>
struct Plain {
  using Element = T;
  static constexpr bool kPadded = false;
  static constexpr size_t kStepBytes = 2 * kVectorBytes;
  static FRD_INLINE Pair<T> Load(const char* from) {
    return {LoadVector<Vector<T>>(from), LoadVector<Vector<T>>(from + kVectorBytes)};
  }
  static FRD_INLINE void Store(Pair<T> value, char* to) {
    StoreVector(value.first, to);
    StoreVector(value.second, to + kVectorBytes);
  }
};

// A partial result of the tree. Its elements have the order in which a codec loads them.
template <class T>
struct Partial : Plain<T> {
  static constexpr bool kPadded = true;
};

// Any byte but 0 is true; stored as 0 or 1.
struct Bool : Plain<uint8_t> {
  static FRD_INLINE Pair<uint8_t> Load(const char* from) {
    const Pair<uint8_t> bytes = Plain<uint8_t>::Load(from);
    return {(Vector<uint8_t>)(bytes.first != 0) & 1, (Vector<uint8_t>)(bytes.second != 0) & 1};
  }
};

// Two neighbours share 32 bits: `first` gets the lower one, `second` the upper one, and no bits move between lanes.
struct HalfWords {
  using Element = float;
  using Bits = Vector<uint32_t>;
  static constexpr bool kPadded = false;
  static constexpr size_t kStepBytes = kVectorBytes;
};

struct Bfloat16 : HalfWords {
  static FRD_INLINE Pair<float> Load(const char* from) {
    const Bits words = LoadVector<Bits>(from);
    return {half_internal::Reinterpret<Vector<float>>(words << 16),
            half_internal::Reinterpret<Vector<float>>(words & 0xffff0000u)};
  }
  static FRD_INLINE void Store(Pair<float> value, char* to) {
    const Bits lower = half_internal::RoundToUpperHalf(half_internal::Reinterpret<Bits>(value.first));
    const Bits upper = half_internal::RoundToUpperHalf(half_internal::Reinterpret<Bits>(value.second));
    StoreVector(lower >> 16 | (upper & 0xffff0000u), to);
  }
};

// For processors without conversions in hardware. Files for other processors define their own Float16.
struct PortableFloat16 : HalfWords {
  static FRD_INLINE Pair<float> Load(const char* from) {
    const Bits words = LoadVector<Bits>(from);
    return {half_internal::WidenFloat16<Vector<float>, Bits>(words & 0xffffu),
            half_internal::WidenFloat16<Vector<float>, Bits>(words >> 16)};
  }
  static FRD_INLINE void Store(Pair<float> value, char* to) {
    const Bits lower = half_internal::NarrowFloat16<Vector<float>, Bits>(value.first);
    const Bits upper = half_internal::NarrowFloat16<Vector<float>, Bits>(value.second);
    StoreVector(lower | upper << 16, to);
  }
};

// For processors with conversions in hardware: Conversion::Widen reads half a step, and Narrow reverses it. `first` and
// `second` get the halves of a step.
template <class Conversion>
struct ConvertedFloat16 : HalfWords {
  static FRD_INLINE Pair<float> Load(const char* from) {
    return {Conversion::Widen(from), Conversion::Widen(from + kStepBytes / 2)};
  }
  static FRD_INLINE void Store(Pair<float> value, char* to) {
    StoreVector(Conversion::Narrow(value.first), to);
    StoreVector(Conversion::Narrow(value.second), to + kStepBytes / 2);
  }
};

// ---- operations

template <class Element>
constexpr bool kIsReal = std::is_floating_point<Element>::value;
// The bits of a real number.
template <class Element>
using BitsOf = std::conditional_t<sizeof(Element) == sizeof(uint64_t), uint64_t, uint32_t>;
template <class Element>
using VectorBits = Vector<BitsOf<Element>>;

// kWraps: integers may leave their range. OfBools: the operation on 0 and 1, where "or" is Max, and "and" is Min.
struct Min;
struct Max;
struct NoKernel {};  // a reduction without an element-wise kernel

struct Sum {
  static constexpr bool kWraps = true;
  using OfBools = Max;
  template <class Element>
  static FRD_INLINE Vector<Element> Apply(Vector<Element> left, Vector<Element> right) {
    return left + right;
  }
};

struct Product {
  static constexpr bool kWraps = true;
  using OfBools = Min;
  template <class Element>
  static FRD_INLINE Vector<Element> Apply(Vector<Element> left, Vector<Element> right) {
    return left * right;
  }
};

// Both comparisons, left < right and right < left, pick the same value, except for two zeros or a NaN, where they pick
// both operands. The bitwise or of both picks gives -0 for zeros of different signs, and a NaN if one operand is a NaN.
struct Min {
  static constexpr bool kWraps = false;
  using OfBools = Min;
  template <class Element>
  static FRD_INLINE Vector<Element> Apply(Vector<Element> left, Vector<Element> right) {
    const Vector<Element> once = left < right ? left : right;
    if constexpr (kIsReal<Element>) {
      using Bits = VectorBits<Element>;
      const Vector<Element> again = right < left ? right : left;
      return half_internal::Reinterpret<Vector<Element>>(half_internal::Reinterpret<Bits>(once) |
                                                         half_internal::Reinterpret<Bits>(again));
    } else {
      return once;
    }
  }
};

// As Min of the negated values: the sign bits are flipped before the bitwise or, and back after it.
struct Max {
  static constexpr bool kWraps = false;
  using OfBools = Max;
  template <class Element>
  static FRD_INLINE Vector<Element> Apply(Vector<Element> left, Vector<Element> right) {
    const Vector<Element> once = left > right ? left : right;
    if constexpr (kIsReal<Element>) {
      using Bits = VectorBits<Element>;
      const Vector<Element> again = right > left ? right : left;
      const Bits sign = Bits{} + (BitsOf<Element>{1} << (8 * sizeof(Element) - 1));
      const Bits negated =
          (half_internal::Reinterpret<Bits>(once) ^ sign) | (half_internal::Reinterpret<Bits>(again) ^ sign);
      return half_internal::Reinterpret<Vector<Element>>(negated ^ sign);
    } else {
      return once;
    }
  }
};

template <class Element, class Op>
FRD_INLINE Pair<Element> ApplyPair(Pair<Element> left, Pair<Element> right) {
  return {Op::template Apply<Element>(left.first, right.first), Op::template Apply<Element>(left.second, right.second)};
}

// Scales the root of the tree, and replaces a NaN by the quiet one. ScaleIntegers scales integers.
template <class Element>
FRD_INLINE Vector<Element> Finish(Vector<Element> value, Element factor) {
  if constexpr (kIsReal<Element>) {
    const Vector<Element> scaled = value * factor;
    const Vector<Element> quiet = Vector<Element>{} + std::numeric_limits<Element>::quiet_NaN();
    return scaled == scaled ? scaled : quiet;
  } else {
    return value;
  }
}

}  // namespace
}  // namespace farandole
