#include "backends/nccl/meaning.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include "reduce/half.h"

namespace farandole {
namespace {

constexpr auto kTypes = ByNumber<kDTypeCount, NcclType>(NcclType::kNone, {{DType::kUint8, NcclType::kUint8},
                                                                          {DType::kInt8, NcclType::kInt8},
                                                                          {DType::kInt32, NcclType::kInt32},
                                                                          {DType::kInt64, NcclType::kInt64},
                                                                          {DType::kFloat16, NcclType::kFloat16},
                                                                          {DType::kBfloat16, NcclType::kBfloat16},
                                                                          {DType::kFloat32, NcclType::kFloat32},
                                                                          {DType::kFloat64, NcclType::kFloat64},
                                                                          {DType::kBool, NcclType::kUint8}});
constexpr auto kReductions =
    ByNumber<kReduceOpCount, NcclReduce>(NcclReduce::kNone, {{ReduceOp::kSum, NcclReduce::kSum},
                                                             {ReduceOp::kMin, NcclReduce::kMin},
                                                             {ReduceOp::kMax, NcclReduce::kMax},
                                                             {ReduceOp::kProduct, NcclReduce::kProduct}});
constexpr auto kReductionsOfBools =
    ByNumber<kReduceOpCount, NcclReduce>(NcclReduce::kNone, {{ReduceOp::kSum, NcclReduce::kMax},
                                                             {ReduceOp::kMin, NcclReduce::kMin},
                                                             {ReduceOp::kMax, NcclReduce::kMax},
                                                             {ReduceOp::kProduct, NcclReduce::kMin}});
constexpr auto kPerformed = ByNumber<kOpKindCount, bool>(false, {{OpKind::kAllreduce, true},
                                                                 {OpKind::kAllgather, true},
                                                                 {OpKind::kBroadcast, true},
                                                                 {OpKind::kAlltoall, true},
                                                                 {OpKind::kReducescatter, true}});

constexpr double kLeastOfFloat16 = 1.0 / 16384, kMostOfFloat16 = 65504;

// The factor is rounded to the type, which must not cost it more than a result is rounded by.
bool CanHold(DType dtype, double factor) {
  const double size = std::fabs(factor);
  switch (dtype) {
    case DType::kFloat16:
      return size >= kLeastOfFloat16 && size <= kMostOfFloat16;
    case DType::kBfloat16:
    case DType::kFloat32:
      return size >= FLT_MIN && size <= FLT_MAX / 2;
    default:
      return true;
  }
}

// NCCL spreads what a communicator of one rank scales over blocks of threads, and leaves out the last elements where
// their number is no multiple of the blocks' (seen with 2.28.9: 10 of 44,186 floats were not scaled).
bool CanScale(int set_size) { return set_size > 1; }

bool CanReduce(const PathFacts& facts) {
  const DType dtype = facts.dtype;
  const ReduceOp reduce = facts.reduce;
  const Scale& scale = facts.scale;
  if (NcclTypeOf(dtype) == NcclType::kNone || NcclReduceOf(dtype, reduce) == NcclReduce::kNone) return false;
  const bool picks = reduce == ReduceOp::kMin || reduce == ReduceOp::kMax;
  if (IsFloating(dtype) && picks) return false;
  if (dtype == DType::kBool || scale.IsIdentity()) return true;
  return IsFloating(dtype) && reduce == ReduceOp::kSum && CanScale(facts.set_size) &&
         CanHold(dtype, scale.multiplier / scale.divisor);
}

}  // namespace

bool NcclRelays(OpKind kind) { return Fuses(kind); }

bool NcclSupports(const PathFacts& facts) {
  if (!facts.on_device) return false;
  if (facts.is_cut_off() && !NcclRelays(facts.kind)) return false;
  if (AllocatesOutput(facts.kind) && !facts.results_on_device) return false;
  return kPerformed[static_cast<size_t>(facts.kind)] && (!Reduces(facts.kind) || CanReduce(facts));
}

NcclType NcclTypeOf(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }

NcclReduce NcclReduceOf(DType dtype, ReduceOp reduce) {
  return (dtype == DType::kBool ? kReductionsOfBools : kReductions)[static_cast<size_t>(reduce)];
}

NcclFactor FactorOf(DType dtype, const Scale& scale) {
  NcclFactor factor;
  const double exact = scale.multiplier / scale.divisor;
  const auto single = static_cast<float>(exact);
  const auto put = [&factor](auto value) { std::memcpy(factor.bytes, &value, sizeof(value)); };
  if (dtype == DType::kFloat16) put(FloatToFloat16(single));
  if (dtype == DType::kBfloat16) put(FloatToBfloat16(single));
  if (dtype == DType::kFloat32) put(single);
  if (dtype == DType::kFloat64) put(exact);
  return factor;
}

}  // namespace farandole
