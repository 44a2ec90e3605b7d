#include "types.h"

#include "farandole/farandole.h"

namespace farandole_tensorflow {
namespace {

struct Pair {
  int32_t core;
  int tf;
};

constexpr Pair kPairs[] = {{FRD_UINT8, 4},   {FRD_INT8, 6},      {FRD_UINT16, 17},    {FRD_INT16, 5},
                           {FRD_INT32, 3},   {FRD_INT64, 9},     {FRD_FLOAT16, 19},   {FRD_BFLOAT16, 14},
                           {FRD_FLOAT32, 1}, {FRD_FLOAT64, 2},   {FRD_BOOL, 10},      {FRD_UINT32, 22},
                           {FRD_UINT64, 23}, {FRD_COMPLEX64, 8}, {FRD_COMPLEX128, 18}};

}  // namespace

const char* const kTypes =
    "{uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, bool, "
    "uint32, uint64, complex64, complex128}";

int32_t CoreTypeOf(int tf_type) {
  for (const Pair& each : kPairs) {
    if (each.tf == tf_type) return each.core;
  }
  return -1;
}

int TfTypeOf(int32_t core_type) {
  for (const Pair& each : kPairs) {
    if (each.core == core_type) return each.tf;
  }
  return -1;
}

}  // namespace farandole_tensorflow
