// The words of every layer: element types, reductions, collectives, shapes.
//
// The numbers stand in the C header, in Python and on the wire: append, never renumber.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole {

enum class DType : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kBfloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
  kBool = 10,
};
inline constexpr int kDTypeCount = 11;

enum class ReduceOp : uint8_t { kSum = 0, kAverage = 1, kMin = 2, kMax = 3, kProduct = 4, kAdasum = 5 };
inline constexpr int kReduceOpCount = 6;

enum class OpKind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kAlltoall = 4,
  kReducescatter = 5,
  kJoin = 6,              // this rank has no more data; it contributes nothing until all ranks say so
  kAddProcessSet = 7,     // the ranks given are a set from here on
  kRemoveProcessSet = 8,  // and no longer
};
inline constexpr int kOpKindCount = 9;

using Shape = std::vector<int64_t>;

// REQUIRES: a value of the enumeration.
size_t SizeOf(DType dtype);
const char* NameOf(DType dtype);      // "float32"
const char* NameOf(ReduceOp reduce);  // "sum"
const char* NameOf(OpKind kind);      // "allreduce"

inline bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }
inline bool IsFloating(DType dtype) { return IsHalf(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64; }

// Number of elements; 1 for a scalar (no dimensions). REQUIRES: no negative dimension.
int64_t ElementCount(const Shape& shape);
std::string ToString(const Shape& shape);  // "(3, 4)", "()" for a scalar

}  // namespace farandole
