// Reduce by its definition, for tests: one element at a time, the recursion as reduce.h states it.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "reduce/half_oracle.h"
#include "reduce/reduce.h"

namespace farandole::tests {

template <class T>
T RealPair(ReduceOp reduce, T left, T right) {
  const bool left_is_less = left < right || (left == right && std::signbit(left) && !std::signbit(right));
  const bool finds_nan = std::isnan(left) || std::isnan(right);
  switch (reduce) {
    case ReduceOp::kSum:
      return left + right;
    case ReduceOp::kProduct:
      return left * right;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      if (finds_nan) return std::numeric_limits<T>::quiet_NaN();
      return left_is_less == (reduce == ReduceOp::kMin) ? left : right;
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      break;  // not element-wise
  }
  return {};
}

template <class T>
T IntegerPair(ReduceOp reduce, T left, T right) {
  const uint64_t wide_left = static_cast<uint64_t>(static_cast<int64_t>(left));
  const uint64_t wide_right = static_cast<uint64_t>(static_cast<int64_t>(right));
  switch (reduce) {
    case ReduceOp::kSum:
      return static_cast<T>(wide_left + wide_right);
    case ReduceOp::kProduct:
      return static_cast<T>(wide_left * wide_right);
    case ReduceOp::kMin:
      return left < right ? left : right;
    case ReduceOp::kMax:
      return left < right ? right : left;
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      break;  // not element-wise
  }
  return {};
}

template <class T>
struct IsComplexValue : std::false_type {};
template <class T>
struct IsComplexValue<std::complex<T>> : std::true_type {};

template <class T>
T OraclePair(ReduceOp reduce, T left, T right) {
  if constexpr (IsComplexValue<T>::value) {
    return left + right;  // only sums are defined
  } else if constexpr (std::is_same<T, bool>::value) {
    return reduce == ReduceOp::kSum || reduce == ReduceOp::kMax ? left || right : left && right;
  } else if constexpr (std::is_floating_point<T>::value) {
    return RealPair(reduce, left, right);
  } else {
    return IntegerPair(reduce, left, right);
  }
}

template <class T>
T OracleTree(ReduceOp reduce, const std::vector<T>& values) {
  if (values.size() == 1) return values[0];
  size_t first = 1;
  while (first * 2 < values.size()) first *= 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(first);
  return OraclePair<T>(reduce, OracleTree<T>(reduce, std::vector<T>(values.begin(), middle)),
                       OracleTree<T>(reduce, std::vector<T>(middle, values.end())));
}

// How an element type is read and written; Value is what it is reduced in.
template <class Memory>
struct PlainOracle {
  using Value = Memory;
  static constexpr size_t kBytes = sizeof(Memory);
  static Value Read(const char* from) {
    Memory value;
    std::memcpy(&value, from, kBytes);
    return value;
  }
  static void Write(Value value, char* to) {
    if constexpr (std::is_floating_point<Memory>::value) {
      if (std::isnan(value)) value = std::numeric_limits<Memory>::quiet_NaN();
    }
    std::memcpy(to, &value, kBytes);
  }
};

template <class Real>
struct ComplexOracle {
  using Value = std::complex<Real>;
  static constexpr size_t kBytes = sizeof(Value);
  static Value Read(const char* from) {
    return {PlainOracle<Real>::Read(from), PlainOracle<Real>::Read(from + sizeof(Real))};
  }
  static void Write(Value value, char* to) {
    PlainOracle<Real>::Write(value.real(), to);
    PlainOracle<Real>::Write(value.imag(), to + sizeof(Real));
  }
};

struct BoolOracle {
  using Value = bool;
  static constexpr size_t kBytes = 1;
  static Value Read(const char* from) { return *from != 0; }
  static void Write(Value value, char* to) { *to = value ? 1 : 0; }
};

template <const HalfOracle& (*oracle)()>
struct NarrowOracle {
  using Value = float;
  static constexpr size_t kBytes = 2;
  static Value Read(const char* from) {
    uint16_t code;
    std::memcpy(&code, from, kBytes);
    return static_cast<float>(oracle().Decode(code));
  }
  static void Write(Value value, char* to) {
    const uint16_t code = std::isnan(value) ? oracle().InfinityCode() | oracle().QuietBit() : oracle().Encode(value);
    std::memcpy(to, &code, kBytes);
  }
};

template <class Type>
std::string OracleOf(ReduceOp reduce, const std::vector<const char*>& inputs, size_t element_count) {
  std::string output(element_count * Type::kBytes, '\0');
  for (size_t i = 0; i < element_count; ++i) {
    std::vector<typename Type::Value> values;
    for (const char* input : inputs) values.push_back(Type::Read(input + i * Type::kBytes));
    Type::Write(OracleTree<typename Type::Value>(reduce, values), &output[i * Type::kBytes]);
  }
  return output;
}

// The bytes of the result, without scale. A NaN is the quiet one without payload; so REQUIRES: at least two inputs.
inline std::string Oracle(DType dtype, ReduceOp reduce, const std::vector<const char*>& inputs, size_t element_count) {
  switch (dtype) {
    case DType::kUint8:
      return OracleOf<PlainOracle<uint8_t>>(reduce, inputs, element_count);
    case DType::kInt8:
      return OracleOf<PlainOracle<int8_t>>(reduce, inputs, element_count);
    case DType::kUint16:
      return OracleOf<PlainOracle<uint16_t>>(reduce, inputs, element_count);
    case DType::kInt16:
      return OracleOf<PlainOracle<int16_t>>(reduce, inputs, element_count);
    case DType::kInt32:
      return OracleOf<PlainOracle<int32_t>>(reduce, inputs, element_count);
    case DType::kInt64:
      return OracleOf<PlainOracle<int64_t>>(reduce, inputs, element_count);
    case DType::kFloat16:
      return OracleOf<NarrowOracle<Float16Oracle>>(reduce, inputs, element_count);
    case DType::kBfloat16:
      return OracleOf<NarrowOracle<Bfloat16Oracle>>(reduce, inputs, element_count);
    case DType::kFloat32:
      return OracleOf<PlainOracle<float>>(reduce, inputs, element_count);
    case DType::kFloat64:
      return OracleOf<PlainOracle<double>>(reduce, inputs, element_count);
    case DType::kBool:
      return OracleOf<BoolOracle>(reduce, inputs, element_count);
    case DType::kUint32:
      return OracleOf<PlainOracle<uint32_t>>(reduce, inputs, element_count);
    case DType::kUint64:
      return OracleOf<PlainOracle<uint64_t>>(reduce, inputs, element_count);
    case DType::kComplex64:
      return OracleOf<ComplexOracle<float>>(reduce, inputs, element_count);
    case DType::kComplex128:
      return OracleOf<ComplexOracle<double>>(reduce, inputs, element_count);
  }
  return {};
}

}  // namespace farandole::tests
