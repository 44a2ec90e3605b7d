// What the instruction sets have in common: one function each, chosen by reduce.cc.
//
//   reduce.cc ---> reduce_portable.cc --.
//             ---> reduce_avx2.cc    ---+--> reduce_kernels.h   the same templates, compiled once per instruction set
//             ---> reduce_avx512.cc  --'
//
// Pure functions; any thread may call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/reduce.h"
#include "common/types.h"

#if defined(__x86_64__)
#define FRD_X86 1
#else
#define FRD_X86 0
#endif

namespace farandole {

// As Fold.
using FoldFunction = void (*)(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count,
                              size_t element_count, Scale scale, void* output);

void FoldPortable(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
                  Scale scale, void* output);
#if FRD_X86
// REQUIRES: the machine has AVX2 and F16C.
void FoldAvx2(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
              Scale scale, void* output);
// REQUIRES: the machine has AVX-512 F, BW, DQ and VL.
void FoldAvx512(DType dtype, ReduceOp reduce, const void* const* inputs, size_t input_count, size_t element_count,
                Scale scale, void* output);
#endif

}  // namespace farandole
