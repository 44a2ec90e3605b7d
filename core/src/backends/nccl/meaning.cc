#include "backends/nccl/meaning.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include "common/half.h"

namespace farandole {
namespace {

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

bool Reduces(const Demand& demand) {
  const DType dtype = demand.dtype;
  const ReduceOp reduce = demand.reduce;
  const Scale& scale = demand.scale;
  if (dtype == DType::kUint16 || dtype == DType::kInt16 || reduce == ReduceOp::kAdasum) return false;
  const bool picks = reduce == ReduceOp::kMin || reduce == ReduceOp::kMax;
  if (IsFloating(dtype) && picks) return false;
  if (dtype == DType::kBool || scale.IsIdentity()) return true;
  return IsFloating(dtype) && reduce == ReduceOp::kSum && CanScale(demand.set_size) &&
         CanHold(dtype, scale.multiplier / scale.divisor);
}

}  // namespace

bool NcclRelays(OpKind kind) { return kind == OpKind::kAllreduce || kind == OpKind::kBroadcast; }

bool NcclSupports(const Demand& demand) {
  if (!demand.on_device) return false;
  if (demand.is_cut_off() && !NcclRelays(demand.kind)) return false;
  switch (demand.kind) {
    case OpKind::kBroadcast:
      return true;
    case OpKind::kAllreduce:
      return Reduces(demand);
    case OpKind::kAllgather:
    case OpKind::kAlltoall:
      return demand.results_on_device;
    case OpKind::kReducescatter:
      return demand.results_on_device && Reduces(demand);
    default:
      return false;
  }
}

NcclType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return NcclType::kInt8;
    case DType::kInt32:
      return NcclType::kInt32;
    case DType::kInt64:
      return NcclType::kInt64;
    case DType::kFloat16:
      return NcclType::kFloat16;
    case DType::kBfloat16:
      return NcclType::kBfloat16;
    case DType::kFloat32:
      return NcclType::kFloat32;
    case DType::kFloat64:
      return NcclType::kFloat64;
    default:
      return NcclType::kUint8;
  }
}

NcclReduce ReduceOf(DType dtype, ReduceOp reduce) {
  const bool is_bool = dtype == DType::kBool;
  switch (reduce) {
    case ReduceOp::kMin:
      return NcclReduce::kMin;
    case ReduceOp::kMax:
      return NcclReduce::kMax;
    case ReduceOp::kProduct:
      return is_bool ? NcclReduce::kMin : NcclReduce::kProduct;
    default:
      return is_bool ? NcclReduce::kMax : NcclReduce::kSum;
  }
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
