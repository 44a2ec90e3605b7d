// Reduce with AVX-512.
#include "reduce/isa.h"

#if FRD_X86

#include <immintrin.h>

#include <limits>
#include <type_traits>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

namespace farandole {
namespace {
constexpr size_t kVectorBytes = 64;
}  // namespace
}  // namespace farandole

#include "reduce/vectors.h"

namespace farandole {
namespace {

struct Float16 : ConvertedFloat16<Float16> {
  // The forms without a mask read an undefined register on purpose, of which g++ 12 warns.
  static constexpr __mmask16 kAllLanes = 0xffff;

  static FRD_INLINE Vector<float> Widen(const char* from) {
    return (Vector<float>)_mm512_maskz_cvtph_ps(kAllLanes, LoadVector<__m256i>(from));
  }
  static FRD_INLINE __m256i Narrow(Vector<float> value) {
    return _mm512_maskz_cvtps_ph(kAllLanes, (__m512)value, _MM_FROUND_TO_NEAREST_INT);
  }
};

}  // namespace
}  // namespace farandole

#include "reduce/kernels.h"

namespace farandole {

ReduceFunction ChooseAvx512(DType dtype, ReduceOp reduce) { return Choose(dtype, reduce); }

}  // namespace farandole

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif  // FRD_X86
