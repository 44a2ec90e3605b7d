// The part of MXNet 1.x that the plugin uses: its C functions, declared here and looked up in the libmxnet that Python
// has loaded.
//
// Declarations of our own, instead of MXNet's headers, let one binary serve every 1.9. Two layouts are taken from
// MXNet's sources, as its C headers lack them: MxCompletion and the class of the error that it takes. Constant after
// OpenMxNet; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace farandole_mxnet {

using NDArrayHandle = void*;

struct MxContext {
  int32_t device_type;
  int32_t device_id;
};
constexpr int kMxGpu = 2;

constexpr int kMxDefaultStorage = 0;

// mxnet::FnProperty. Operations of this kind have threads and a queue ordered by priority of their own; ordinary ones
// wait behind all computation that is ready.
constexpr int kMxCpuPrioritized = 3;
constexpr int kMxNoSkip = 7;  // runs although an array that it writes carries an error

// mxnet::engine::CallbackOnComplete, to be copied while the operation runs and called once, from any thread. `error` is
// a std::runtime_error, which dmlc::Error derives from without adding to it; null for success.
struct MxCompletion {
  void (*callback)(void* engine, void* operation, const void* error);
  void* engine;
  void* operation;
};

using MxRun = void (*)(void* run_context, void* completion, void* argument);
using MxDelete = void (*)(void* argument);

struct MxApi {
  int (*GetVersion)(int* version);
  const char* (*GetLastError)();
  int (*EnginePushAsyncND)(MxRun run, void* argument, MxDelete deleter, const void* context, NDArrayHandle* reads,
                           int read_count, NDArrayHandle* writes, int write_count, const void* property, int priority,
                           const char* name, bool wait);
  int (*NDArrayGetShapeEx64)(NDArrayHandle array, int* dimension_count, const int64_t** shape);
  int (*NDArrayGetDType)(NDArrayHandle array, int* dtype);
  int (*NDArrayGetContext)(NDArrayHandle array, int* device_type, int* device_id);
  int (*NDArrayGetStorageType)(NDArrayHandle array, int* type);
  int (*NDArrayToDLPack)(NDArrayHandle array, void** managed_tensor);
  int (*NDArrayCallDLPackDeleter)(void* managed_tensor);
  int (*ShallowCopyNDArray)(NDArrayHandle array, NDArrayHandle* copy);
  int (*NDArrayFree)(NDArrayHandle array);
};

// The functions; valid after OpenMxNet.
extern MxApi mx;

// Looks the functions up in the library of this path, which must be loaded. Returns "", or why the library cannot be
// used.
std::string OpenMxNet(const char* path);

}  // namespace farandole_mxnet
