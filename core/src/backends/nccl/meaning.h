// What of our operations NCCL has, and in which words. Pure; any thread.
#pragma once

#include "backends/backend.h"
#include "backends/nccl/library.h"

namespace farandole {

// What tensors on a device are for, with results there, unless NCCL would give something else than what we promise: it
// has no 16-bit integers, its minimum and maximum of floats forget a NaN, and it scales nothing but sums of floats, of
// several ranks.
bool NcclSupports(const PathFacts& facts);
// What it does among hosts between which it has no network, with our help.
bool NcclRelays(OpKind kind);

// kNone: NCCL has none. A bool is one byte, 0 or 1; its sum, an or, is a maximum.
NcclType NcclTypeOf(DType dtype);
NcclReduce NcclReduceOf(DType dtype, ReduceOp reduce);

// The factor of a sum in the type itself, as NCCL multiplies every addend by it.
struct NcclFactor {
  alignas(8) unsigned char bytes[8] = {};
};
NcclFactor FactorOf(DType dtype, const Scale& scale);

}  // namespace farandole
