// The kernels of all instruction sets. reduce.cc chooses a set at run time.
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

// As ChooseReduceFunction, by the instructions of one set.
ReduceFunction ChoosePortable(DType dtype, ReduceOp reduce);
#if FRD_X86
// REQUIRES: the machine has AVX2 and F16C.
ReduceFunction ChooseAvx2(DType dtype, ReduceOp reduce);
// REQUIRES: the machine has AVX-512 F, BW, DQ and VL.
ReduceFunction ChooseAvx512(DType dtype, ReduceOp reduce);
#endif

}  // namespace farandole
