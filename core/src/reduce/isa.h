// The folds of all instruction sets, one function each. reduce.cc chooses one at run time.
//
//   reduce.cc ---> portable.cc --.
//             ---> avx2.cc    ---+--> kernels.h   the same templates, compiled once per instruction set
//             ---> avx512.cc  --'
//
// Only files of this folder include it. Pure functions; any thread may call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/cache.h"
#include "common/types.h"
#include "reduce/reduce.h"

#if defined(__x86_64__)
#define FRD_X86 1
#else
#define FRD_X86 0
#endif

namespace farandole {

// The arguments of Fold. A call with a copy has two inputs and stores the result twice.
struct FoldCall {
  ReduceOp reduce;
  const void* const* inputs;
  size_t input_count;
  size_t element_count;
  Scale scale;
  void* output;
  void* copy;  // or null
};

using FoldFunction = void (*)(DType dtype, const FoldCall& call);

void FoldPortable(DType dtype, const FoldCall& call);
#if FRD_X86
// REQUIRES: the machine has AVX2 and F16C.
void FoldAvx2(DType dtype, const FoldCall& call);
// REQUIRES: the machine has AVX-512 F, BW, DQ and VL.
void FoldAvx512(DType dtype, const FoldCall& call);
#endif

}  // namespace farandole
