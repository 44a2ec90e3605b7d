// Reduce for any machine: 16-byte vectors, which are SSE2 on x86-64 and NEON on aarch64. isa.h says how it is chosen.
#include <limits>
#include <type_traits>

#include "reduce/isa.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace farandole {
namespace {
constexpr size_t kVectorBytes = 16;
}  // namespace
}  // namespace farandole

#include "reduce/vectors.h"

namespace farandole {
namespace {

#if defined(__aarch64__)
// Every 64-bit Arm processor converts in hardware.
struct Float16 : ConvertedFloat16<Float16> {
  static FRD_INLINE Vector<float> Widen(const char* from) {
    return (Vector<float>)vcvt_f32_f16(LoadVector<float16x4_t>(from));
  }
  static FRD_INLINE float16x4_t Narrow(Vector<float> value) { return vcvt_f16_f32((float32x4_t)value); }
};
#else
struct Float16 : PortableFloat16 {};
#endif

}  // namespace
}  // namespace farandole

#include "reduce/kernels.h"

namespace farandole {

ReduceFunction ChoosePortable(DType dtype, ReduceOp reduce) { return Choose(dtype, reduce); }

}  // namespace farandole
