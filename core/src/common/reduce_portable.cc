// Fold for any machine: 16-byte vectors, which are SSE2 on x86-64 and NEON on aarch64.
#include <limits>
#include <type_traits>

#include "common/reduce_isa.h"

namespace farandole {
namespace {
constexpr size_t kVectorBytes = 16;
}  // namespace
}  // namespace farandole

#include "common/reduce_vectors.h"

namespace farandole {
namespace {

struct Float16 : PortableFloat16 {};

}  // namespace
}  // namespace farandole

#include "common/reduce_kernels.h"

namespace farandole {

void FoldPortable(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
                  Scale scale, void* output) {
  Dispatch(dtype, Call{reduce, inputs, input_count, element_count, scale, output});
}

}  // namespace farandole
