// NCCL's element types and reductions, computed plainly and apart from the core's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "reduce/conversions.h"

namespace {

enum Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBfloat16, kTypeCount };
enum Reduce { kSum, kProduct, kMax, kMin };  // higher numbers: scaled sums

inline size_t SizeOf(int type) {
  constexpr size_t kSizes[kTypeCount] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

// How elements of a type are read, computed with, and written.
template <typename Stored>
struct Plain {
  using Value = Stored;
  static Value Load(Stored stored) { return stored; }
  static Stored Store(Value value) { return value; }
};
struct Float16 {
  using Value = float;
  static float Load(uint16_t stored) { return farandole::Float16ToFloat(stored); }
  static uint16_t Store(float value) { return farandole::FloatToFloat16(value); }
};
struct Bfloat16 {
  using Value = float;
  static float Load(uint16_t stored) { return farandole::Bfloat16ToFloat(stored); }
  static uint16_t Store(float value) { return farandole::FloatToBfloat16(value); }
};

template <typename Value>
Value Combined(int reduce, Value a, Value b) {
  if (reduce == kMax) return a < b ? b : a;
  if (reduce == kMin) return b < a ? b : a;
  if constexpr (std::is_integral_v<Value>) {  // they wrap
    const auto wide_a = static_cast<uint64_t>(a), wide_b = static_cast<uint64_t>(b);
    return static_cast<Value>(reduce == kProduct ? wide_a * wide_b : wide_a + wide_b);
  } else {
    return reduce == kProduct ? a * b : a + b;
  }
}

// The order that the core promises of its own, so that the same tests can judge both.
template <typename Value>
Value Reduced(int reduce, const Value* values, size_t count) {
  if (count == 1) return values[0];
  size_t first = 1;
  while (2 * first < count) first *= 2;
  return Combined(reduce, Reduced(reduce, values, first), Reduced(reduce, values + first, count - first));
}

template <typename Format, typename Stored>
std::string ReduceAs(int reduce, const std::vector<const char*>& inputs, size_t count, double factor) {
  using Value = typename Format::Value;
  std::string result(count * sizeof(Stored), '\0');
  std::vector<Value> values(inputs.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      Stored stored;
      std::memcpy(&stored, inputs[rank] + i * sizeof(Stored), sizeof(Stored));
      if (factor != 1) stored = Format::Store(static_cast<Value>(Format::Load(stored) * static_cast<Value>(factor)));
      values[rank] = Format::Load(stored);
    }
    const Stored reduced = Format::Store(Reduced(reduce, values.data(), values.size()));
    std::memcpy(&result[i * sizeof(Stored)], &reduced, sizeof(Stored));
  }
  return result;
}

// Scaled sums multiply every addend by `factor`, in the type itself.
inline std::string Reduce(int type, int reduce, const std::vector<const char*>& inputs, size_t count, double factor) {
  switch (type) {
    case kInt8:
      return ReduceAs<Plain<int8_t>, int8_t>(reduce, inputs, count, factor);
    case kUint8:
      return ReduceAs<Plain<uint8_t>, uint8_t>(reduce, inputs, count, factor);
    case kInt32:
      return ReduceAs<Plain<int32_t>, int32_t>(reduce, inputs, count, factor);
    case kUint32:
      return ReduceAs<Plain<uint32_t>, uint32_t>(reduce, inputs, count, factor);
    case kInt64:
      return ReduceAs<Plain<int64_t>, int64_t>(reduce, inputs, count, factor);
    case kUint64:
      return ReduceAs<Plain<uint64_t>, uint64_t>(reduce, inputs, count, factor);
    case kFloat16:
      return ReduceAs<Float16, uint16_t>(reduce, inputs, count, factor);
    case kBfloat16:
      return ReduceAs<Bfloat16, uint16_t>(reduce, inputs, count, factor);
    case kFloat32:
      return ReduceAs<Plain<float>, float>(reduce, inputs, count, factor);
    default:
      return ReduceAs<Plain<double>, double>(reduce, inputs, count, factor);
  }
}

inline double ValueOf(int type, const void* scalar) {
  const auto read = [scalar](auto value) {
    std::memcpy(&value, scalar, sizeof(value));
    return value;
  };
  if (type == kFloat16) return farandole::Float16ToFloat(read(uint16_t{}));
  if (type == kBfloat16) return farandole::Bfloat16ToFloat(read(uint16_t{}));
  return type == kFloat32 ? read(float{}) : read(double{});
}

}  // namespace
