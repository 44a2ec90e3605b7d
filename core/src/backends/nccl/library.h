// The functions of NCCL that the core uses, looked up in its library at run time, and the operations that NCCL can
// perform. No header of NCCL is included: the names, numbers and layouts below are its binary interface, the same from
// 2.18 on.
//
// A library is opened once per path and stays for the life of the process, since a framework in it may use it too. The
// functions of this file are for any thread; NCCL's own depend on its version (communicators.h).
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "backends/backend.h"
#include "common/config.h"
#include "common/status.h"

namespace farandole {

// Names of NCCL's interface.
using NcclComm = void*;
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclSystemError = 2;
inline constexpr int kNcclRemoteError = 6;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclScalarOfHost = 1;  // ncclScalarHostImmediate
inline constexpr int kNcclMinVersion = 21800;

enum class NcclType : int {
  kNone = -1,
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
enum class NcclReduce : int { kNone = -1, kSum = 0, kProduct = 1, kMax = 2, kMin = 3 };  // calls make others

struct NcclUniqueId {
  char bytes[128] = {};
};

// As of 2.18. Later versions read as many bytes as `size` says and take their defaults for the rest. The last member is
// padding there; 2.26 reads it without asking for `version`.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kNcclMinVersion;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // this and the rest: NCCL's default
  int min_blocks = INT_MIN;
  int max_blocks = INT_MIN;
  const char* network = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 48, "no padding at its end");

template <typename Signature>
struct NcclFunction {
  const char* name;
  Signature* pointer = nullptr;
};

// An open library. It does not change afterwards, so threads share it without a lock.
struct NcclLibrary {
  std::string path;  // as the user or the core asked for it
  int version = 0;   // 21803

  NcclFunction<int(int*)> get_version{"ncclGetVersion"};
  NcclFunction<const char*(int)> get_error_string{"ncclGetErrorString"};
  NcclFunction<const char*(NcclComm)> get_last_error{"ncclGetLastError"};
  NcclFunction<int(NcclUniqueId*)> get_unique_id{"ncclGetUniqueId"};
  NcclFunction<int(NcclComm*, int, NcclUniqueId, int, NcclConfig*)> init{"ncclCommInitRankConfig"};
  NcclFunction<int(NcclComm, int*)> get_async_error{"ncclCommGetAsyncError"};
  NcclFunction<int(NcclComm)> finalize{"ncclCommFinalize"};
  NcclFunction<int(NcclComm)> destroy{"ncclCommDestroy"};
  NcclFunction<int(NcclComm)> abort{"ncclCommAbort"};
  NcclFunction<int()> group_start{"ncclGroupStart"};
  NcclFunction<int()> group_end{"ncclGroupEnd"};
  NcclFunction<int(const void*, void*, size_t, NcclType, NcclReduce, NcclComm, void*)> all_reduce{"ncclAllReduce"};
  NcclFunction<int(const void*, void*, size_t, NcclType, int, NcclComm, void*)> broadcast{"ncclBroadcast"};
  NcclFunction<int(const void*, void*, size_t, NcclType, NcclComm, void*)> all_gather{"ncclAllGather"};
  NcclFunction<int(const void*, void*, size_t, NcclType, NcclReduce, NcclComm, void*)> reduce_scatter{
      "ncclReduceScatter"};
  NcclFunction<int(const void*, void*, size_t, NcclType, NcclReduce, int, NcclComm, void*)> reduce{"ncclReduce"};
  NcclFunction<int(const void*, size_t, NcclType, int, NcclComm, void*)> send{"ncclSend"};
  NcclFunction<int(void*, size_t, NcclType, int, NcclComm, void*)> receive{"ncclRecv"};
  NcclFunction<int(NcclReduce*, void*, NcclType, int, NcclComm)> make_scaled_sum{"ncclRedOpCreatePreMulSum"};
  NcclFunction<int(NcclReduce, NcclComm)> destroy_reduce{"ncclRedOpDestroy"};

  std::string name() const;  // "NCCL 2.18.3"
  // "<call> failed on <where>: <what NCCL says of the code> (<code>), <what it says of the case>". `comm` may be null.
  // REQUIRES: it failed.
  Status Failed(const char* call, int code, NcclComm comm, const std::string& where) const;
};

// Takes the path that the user gives, else the library that is in this process already, a framework's, else the
// system's. kInvalid says what was looked for and what to do.
Status OpenNccl(const Settings& settings, const NcclLibrary** library);

// ---- the core's operations in NCCL's terms. Pure.

// True for operations on tensors of a device, with results there, unless NCCL's results differ from the documented
// ones: it has no 16-bit integers, its minimum and maximum of floats lose a NaN, and it scales only sums of floats, of
// several ranks.
bool NcclSupports(const OperationFacts& facts);

// kNone where NCCL has none. A bool is one byte, 0 or 1; its sum, an or, is a maximum.
NcclType NcclTypeOf(DType dtype);
NcclReduce NcclReduceOf(DType dtype, ReduceOp reduce);

// The factor of a sum as a value of the type itself: NCCL multiplies every addend by it.
struct NcclFactor {
  alignas(8) unsigned char bytes[8] = {};
};
NcclFactor FactorOf(DType dtype, const Scale& scale);

}  // namespace farandole
