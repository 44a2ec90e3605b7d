#include "reduce/integer_average.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reduce/conversions.h"

namespace farandole {
namespace {

__extension__ typedef __int128 Int128;

template <class T>
T ReadAt(const void* values, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(values) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void WriteAt(T value, void* values, size_t index) {
  std::memcpy(static_cast<char*>(values) + index * sizeof(T), &value, sizeof(T));
}

// How the elements of one type lie in int64, and the type that holds any sum of them.
template <class T, bool kIsLong = sizeof(T) == sizeof(int64_t)>
struct Wide {
  using Sum = int64_t;
  static void Write(T value, void* wide, size_t index) { WriteAt<int64_t>(value, wide, index); }
  static Sum Read(const void* wide, size_t index) { return ReadAt<int64_t>(wide, index); }
};

template <class T>
struct Wide<T, true> {
  using Sum = Int128;
  // The upper half of a signed value is signed, since C++ compilers shift its sign.
  static void Write(T value, void* wide, size_t index) {
    WriteAt<int64_t>(static_cast<uint32_t>(value), wide, 2 * index);
    WriteAt<int64_t>(static_cast<int64_t>(value >> 32), wide, 2 * index + 1);
  }
  static Sum Read(const void* wide, size_t index) {
    return Sum{ReadAt<int64_t>(wide, 2 * index + 1)} * (int64_t{1} << 32) + ReadAt<int64_t>(wide, 2 * index);
  }
};

template <class T>
T Averaged(typename Wide<T>::Sum sum, Scale scale) {
  if (scale.multiplier != 1.0) return Truncate<T>(static_cast<double>(sum) * scale.multiplier / scale.divisor);
  const auto divisor = static_cast<int64_t>(scale.divisor);
  const auto short_sum = static_cast<int64_t>(sum);  // nearly always the sum, and divided in less time
  return static_cast<T>(short_sum == sum ? short_sum / divisor : sum / divisor);
}

// Calls visit(T()) with the type of the elements.
template <class Visit>
void WithType(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kUint8:
      return visit(uint8_t());
    case DType::kInt8:
      return visit(int8_t());
    case DType::kUint16:
      return visit(uint16_t());
    case DType::kInt16:
      return visit(int16_t());
    case DType::kUint32:
      return visit(uint32_t());
    case DType::kInt32:
      return visit(int32_t());
    case DType::kUint64:
      return visit(uint64_t());
    case DType::kInt64:
      return visit(int64_t());
    default:
      return;  // not an integer
  }
}

}  // namespace

size_t WideBytes(DType dtype, size_t element_count) {
  return element_count * (SizeOf(dtype) == sizeof(int64_t) ? 2 : 1) * sizeof(int64_t);
}

void Widen(DType dtype, const void* values, size_t element_count, void* wide) {
  WithType(dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < element_count; ++i) Wide<T>::Write(ReadAt<T>(values, i), wide, i);
  });
}

void AverageOfWide(DType dtype, const void* wide_sums, size_t element_count, Scale scale, void* averages) {
  WithType(dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < element_count; ++i) WriteAt(Averaged<T>(Wide<T>::Read(wide_sums, i), scale), averages, i);
  });
}

}  // namespace farandole
