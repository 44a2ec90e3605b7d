#include "backends/nccl/library.h"

#include <dlfcn.h>

#include <cfloat>
#include <cmath>
#include <cstring>

#include "common/dynamic_library.h"
#include "reduce/conversions.h"

namespace farandole {
namespace {

// ---- the library

constexpr char kSoname[] = "libnccl.so.2";

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

const char* LookUpAll(void* library, NcclLibrary* l) {
  return LookUp(library, &l->init, &l->get_error_string, &l->get_last_error, &l->get_unique_id, &l->get_async_error,
                &l->finalize, &l->destroy, &l->abort, &l->group_start, &l->group_end, &l->all_reduce, &l->broadcast,
                &l->all_gather, &l->reduce_scatter, &l->reduce, &l->send, &l->receive, &l->make_scaled_sum,
                &l->destroy_reduce);
}

// Without a path from the user, an NCCL that a framework has loaded in this process goes before the system's.
void* OpenByOrder(const std::string& wanted) {
  if (!wanted.empty()) return dlopen(wanted.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (void* const present = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return present;
  return dlopen(kSoname, RTLD_NOW | RTLD_LOCAL);
}

Status Open(const std::string& wanted, NcclLibrary* library) {
  void* const opened = OpenByOrder(wanted);
  library->path = wanted.empty() ? kSoname : wanted;
  if (opened == nullptr) {
    return Invalid("NCCL cannot be opened: looked for ", library->path,
                   (wanted.empty() ? " in this process and where the system looks for libraries" : ""), " (", dlerror(),
                   "); `pip install nvidia-nccl-cu12` (or -cu13, as your framework's CUDA), set FARANDOLE_NCCL_LIB to "
                   "the path of libnccl.so.2, or take nccl out of FARANDOLE_BACKEND");
  }
  // Asks for the version first: an older library lacks functions, and then the message should name its age.
  if (const char* const missing = LookUp(opened, &library->get_version)) {
    return Invalid(library->path, " has no function ", missing,
                   ", so it is no NCCL; set FARANDOLE_NCCL_LIB to the path of libnccl.so.2");
  }
  const int code = library->get_version.pointer(&library->version);
  if (code != kNcclSuccess) {
    return Invalid(library->path, " does not say which NCCL it is: ", library->get_version.name, " gives ", code,
                   "; set FARANDOLE_NCCL_LIB to the path of another libnccl.so.2");
  }
  if (library->version < kNcclMinVersion) {
    return Invalid(library->path, " is ", library->name(), ", and ", VersionText(kNcclMinVersion),
                   " is the oldest that can be used; install a newer one and set FARANDOLE_NCCL_LIB to its path");
  }
  if (const char* const missing = LookUpAll(opened, library)) {
    return Invalid(library->path, " says that it is ", library->name(), " and has no function ", missing,
                   "; set FARANDOLE_NCCL_LIB to the path of a complete libnccl.so.2");
  }
  return Status::Ok();
}

// ---- the core's operations

constexpr auto kTypes = ByNumber<kDTypeCount, NcclType>(NcclType::kNone, {{DType::kUint8, NcclType::kUint8},
                                                                          {DType::kInt8, NcclType::kInt8},
                                                                          {DType::kInt32, NcclType::kInt32},
                                                                          {DType::kInt64, NcclType::kInt64},
                                                                          {DType::kFloat16, NcclType::kFloat16},
                                                                          {DType::kBfloat16, NcclType::kBfloat16},
                                                                          {DType::kFloat32, NcclType::kFloat32},
                                                                          {DType::kFloat64, NcclType::kFloat64},
                                                                          {DType::kBool, NcclType::kUint8},
                                                                          {DType::kUint32, NcclType::kUint32},
                                                                          {DType::kUint64, NcclType::kUint64}});
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
constexpr double kMinOfFloat16 = 1.0 / 16384, kMaxOfFloat16 = 65504;

// The factor is rounded to the type. That must not change it by more than a result is rounded by, which excludes
// subnormal and infinite factors.
bool CanHold(DType dtype, double factor) {
  const double size = std::fabs(factor);
  switch (dtype) {
    case DType::kFloat16:
      return size >= kMinOfFloat16 && size <= kMaxOfFloat16;
    case DType::kBfloat16:
    case DType::kFloat32:
      return size >= FLT_MIN && size <= FLT_MAX / 2;
    default:
      return true;
  }
}

// In a communicator of one rank, NCCL spreads the elements to scale over blocks of threads, and leaves out the last
// ones where their number is no multiple of the blocks' (seen with 2.28.9: 10 of 44,186 floats were not scaled).
bool CanScale(int set_size) { return set_size > 1; }

bool CanReduce(const OperationFacts& facts) {
  const DType dtype = facts.dtype;
  const ReduceOp reduce = facts.reduce;
  const Scale& scale = facts.scale;
  if (NcclTypeOf(dtype) == NcclType::kNone || NcclReduceOf(dtype, reduce) == NcclReduce::kNone) return false;
  const bool picks = reduce == ReduceOp::kMin || reduce == ReduceOp::kMax;
  if (IsFloating(dtype) && picks) return false;
  if (dtype == DType::kBool || (facts.prescale == 1.0 && scale.IsIdentity())) return true;
  return IsFloating(dtype) && reduce == ReduceOp::kSum && CanScale(facts.set_size) &&
         CanHold(dtype, facts.prescale * scale.multiplier / scale.divisor);
}

}  // namespace

// NCCL numbers its versions like this from 2.9 on; older ones are read as an older version all the same.
std::string NcclLibrary::name() const { return "NCCL " + VersionText(version); }

Status NcclLibrary::Failed(const char* call, int code, NcclComm comm, const std::string& where) const {
  const char* const meaning = get_error_string.pointer(code);
  const char* const detail = get_last_error.pointer(comm);
  const bool has_detail = detail != nullptr && detail[0] != '\0';
  return Internal(call, " of ", name(), " failed on ", where, ": ", (meaning != nullptr ? meaning : "unknown error"),
                  " (", code, ")", (has_detail ? std::string(", ") + detail : ""));
}

Status OpenNccl(const Settings& settings, const NcclLibrary** library) {
  const std::string wanted = PathOfLibrary(settings, "nccl");
  return OpenOnce(wanted, library, [&](NcclLibrary* fresh) { return Open(wanted, fresh); });
}

bool NcclSupports(const OperationFacts& facts) {
  if (!facts.on_device) return false;
  if (AllocatesOutput(facts.kind) && !facts.results_on_device) return false;
  return LibrariesPerform(facts) && (!Reduces(facts.kind) || CanReduce(facts));
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
