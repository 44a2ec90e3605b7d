// The types of every layer: element types, reductions, collectives, shapes. Their rows stand in types.def; the
// functions below return the properties of an element type, a reduction or a collective. Pure functions and values; any
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

enum class DType : uint8_t {
#define FRD_DTYPE(enumerator, number, ...) enumerator = number,
#include "common/types.def"
};

enum class ReduceOp : uint8_t {
#define FRD_REDUCE_OP(enumerator, number, ...) enumerator = number,
#include "common/types.def"
};

enum class OpKind : uint8_t {
#define FRD_OP_KIND(enumerator, number, ...) enumerator = number,
#include "common/types.def"
};

// The kind of memory in which a tensor lies.
enum class DeviceKind : int32_t { kHost = 0, kCuda = 1 };
inline constexpr int kDeviceKindCount = 2;

enum ReduceTrait : unsigned {
  kOrderMatters = 1,  // except for integers: each reduction rounds, so the bits of the result depend on the order
  kWholeTensors = 2,  // works on each tensor as a whole, so tensors are neither fused nor cut; allreduce only
};

enum OpTrait : unsigned {
  kCarriesTensors = 1,
  kReduces = 2,           // takes a reduction and its scale
  kRooted = 4,            // takes a root
  kRowsDiffer = 8,        // the first dimension may differ from rank to rank
  kAllocatesOutput = 16,  // the rows of the result are unknown before, or differ by rank, so the core allocates it
  kFuses = 32,            // input and output have one shape: tensors may be fused, results may replace inputs
  kTakesSplits = 64,      // takes the number of rows for each position
  kChangesSets = 128,     // takes ranks
  kOfWholeWorld = 256,    // concerns all ranks, and takes no process set
  kRootSends = 512,       // only the root's input is read
};

struct DTypeRow {
  const char* name;
  char kind;
  size_t size_bytes;
};
inline constexpr DTypeRow kDTypes[] = {
#define FRD_DTYPE(enumerator, number, name, kind, size_bytes, kernel) {name, kind, size_bytes},
#include "common/types.def"
};
inline constexpr int kDTypeCount = std::size(kDTypes);

struct ReduceOpRow {
  const char* name;
  std::string_view kinds;
  unsigned traits;
};
inline constexpr ReduceOpRow kReduceOps[] = {
#define FRD_REDUCE_OP(enumerator, number, name, kinds, traits, operation) {name, kinds, traits},
#include "common/types.def"
};
inline constexpr int kReduceOpCount = std::size(kReduceOps);

struct OpKindRow {
  const char* name;
  unsigned traits;
};
inline constexpr OpKindRow kOpKinds[] = {
#define FRD_OP_KIND(enumerator, number, name, traits, ...) {name, traits},
#include "common/types.def"
};
inline constexpr int kOpKindCount = std::size(kOpKinds);

// REQUIRES, of all: a value of the enumeration.
constexpr const DTypeRow& RowOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }
constexpr const ReduceOpRow& RowOf(ReduceOp reduce) { return kReduceOps[static_cast<size_t>(reduce)]; }
constexpr const OpKindRow& RowOf(OpKind kind) { return kOpKinds[static_cast<size_t>(kind)]; }

// Returns whether a number from the wire or the C interface is a value of the enumeration.
constexpr bool IsKnown(DType dtype) { return static_cast<int>(dtype) < kDTypeCount; }
constexpr bool IsKnown(ReduceOp reduce) { return static_cast<int>(reduce) < kReduceOpCount; }
constexpr bool IsKnown(DeviceKind device) { return device == DeviceKind::kHost || device == DeviceKind::kCuda; }
constexpr bool IsKnown(OpKind kind) { return static_cast<int>(kind) < kOpKindCount; }

constexpr const char* NameOf(DType dtype) { return RowOf(dtype).name; }       // "float32"
constexpr const char* NameOf(ReduceOp reduce) { return RowOf(reduce).name; }  // "sum"
constexpr const char* NameOf(OpKind kind) { return RowOf(kind).name; }        // "allreduce"

// Returns whether `kind` is one of the letters in `kinds`.
constexpr bool HasKind(std::string_view kinds, char kind) { return kinds.find(kind) != std::string_view::npos; }

constexpr size_t SizeOf(DType dtype) { return RowOf(dtype).size_bytes; }
constexpr bool IsInteger(DType dtype) { return HasKind("uib", RowOf(dtype).kind); }  // or a bool
constexpr bool IsFloating(DType dtype) { return RowOf(dtype).kind == 'f'; }
constexpr bool IsComplex(DType dtype) { return RowOf(dtype).kind == 'c'; }
constexpr bool IsHalf(DType dtype) { return IsFloating(dtype) && SizeOf(dtype) == 2; }

constexpr bool Supports(DType dtype, ReduceOp reduce) { return HasKind(RowOf(reduce).kinds, RowOf(dtype).kind); }

constexpr bool OrderMatters(DType dtype, ReduceOp reduce) {
  return !IsInteger(dtype) && (RowOf(reduce).traits & kOrderMatters) != 0;
}
// The type of the elements by which a tensor is reduced: a complex number is two reals.
constexpr DType ReducedAs(DType dtype) {
  if (!IsComplex(dtype)) return dtype;
  return dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
}
// The sum may not fit the type, so it is formed in wider integers (reduce/integer_average.h).
constexpr bool AveragesIntegers(DType dtype, ReduceOp reduce) {
  return reduce == ReduceOp::kAverage && IsInteger(dtype);
}
constexpr bool NeedsWholeTensors(ReduceOp reduce) { return (RowOf(reduce).traits & kWholeTensors) != 0; }

constexpr bool Has(OpKind kind, OpTrait trait) { return (RowOf(kind).traits & trait) != 0; }
constexpr bool CarriesTensors(OpKind kind) { return Has(kind, kCarriesTensors); }
constexpr bool Reduces(OpKind kind) { return Has(kind, kReduces); }
constexpr bool HasRoot(OpKind kind) { return Has(kind, kRooted); }
constexpr bool OnlyRootSends(OpKind kind) { return Has(kind, kRootSends); }
constexpr bool RowsDiffer(OpKind kind) { return Has(kind, kRowsDiffer); }
constexpr bool AllocatesOutput(OpKind kind) { return Has(kind, kAllocatesOutput); }
constexpr bool Fuses(OpKind kind) { return Has(kind, kFuses); }
constexpr bool TakesSplits(OpKind kind) { return Has(kind, kTakesSplits); }
constexpr bool ChangesSets(OpKind kind) { return Has(kind, kChangesSets); }
constexpr bool ConcernsWholeWorld(OpKind kind) { return Has(kind, kOfWholeWorld); }

// Makes a table, indexed by number, of a library's names for our element types or reductions. A value without a pair
// gets an empty slot: the library does not support it.
template <typename Name>
struct LibraryName {
  int number;
  Name name;
  template <typename Word>
  constexpr LibraryName(Word word, Name its_name) : number(static_cast<int>(word)), name(its_name) {}
};
template <size_t kCount, typename Name, size_t kNamed>
constexpr std::array<Name, kCount> ByNumber(Name empty, const LibraryName<Name> (&names)[kNamed]) {
  std::array<Name, kCount> slots{};
  for (Name& slot : slots) slot = empty;
  for (const LibraryName<Name>& each : names) slots[static_cast<size_t>(each.number)] = each.name;
  return slots;
}

// Elements that lie one after the other in memory that the caller owns.
template <typename T>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(T* data, size_t size) : data_(data), size_(size) {}
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  constexpr size_t size() const { return size_; }
  constexpr T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};
inline bool operator==(Span<const int64_t> left, const std::vector<int64_t>& right) {
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin());
}

using Shape = std::vector<int64_t>;

// Number of elements; 1 for a scalar (no dimensions). REQUIRES: no negative dimension.
inline int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) count *= dimension;
  return count;
}

// "(3, 4)", "()" for a scalar
inline std::string ToString(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace farandole
