// Reduce with AVX2 and F16C.
#include "reduce/isa.h"

#if FRD_X86

#include <immintrin.h>

#include <limits>
#include <type_traits>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

namespace farandole {
namespace {
constexpr size_t kVectorBytes = 32;
}  // namespace
}  // namespace farandole

#include "reduce/vectors.h"

namespace farandole {
namespace {

struct Float16 : ConvertedFloat16<Float16> {
  static FRD_INLINE Vector<float> Widen(const char* from) {
    return (Vector<float>)_mm256_cvtph_ps(LoadVector<__m128i>(from));
  }
  static FRD_INLINE __m128i Narrow(Vector<float> value) {
    return _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
  }
};

}  // namespace
}  // namespace farandole

#include "reduce/kernels.h"

namespace farandole {

ReduceFunction ChooseAvx2(DType dtype, ReduceOp reduce) { return Choose(dtype, reduce); }

}  // namespace farandole

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // FRD_X86
