// NVIDIA's devices, through functions of the CUDA driver that are looked up in its library at run time. No header of
// CUDA is included: the names and parameters below are the driver's stable binary interface, the same since CUDA 10.1.
// So one build works with every driver, and on machines without a driver.
//
// A driver is opened once per path, a device once per driver. Both stay open until the process ends, since frameworks
// use them, too. Any thread may call these functions.
#pragma once

#include <cstddef>
#include <string>

#include "common/status.h"
#include "device/device.h"

namespace farandole {

// Numbers and types of the driver's interface.
using CudaPointer = unsigned long long;  // CUdeviceptr
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaErrorNotReady = 600;
inline constexpr int kCudaPointerMemoryType = 2;     // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
inline constexpr int kCudaPointerDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
inline constexpr unsigned kCudaMemoryTypeHost = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr unsigned kCudaStreamNonBlocking = 1;  // not ordered by the legacy default stream
inline constexpr int kCudaCaptureModeRelaxed = 2;

// A function of the driver. All of them return an error number.
template <typename... Parameters>
struct CudaFunction {
  const char* name;
  int (*pointer)(Parameters...) = nullptr;
};

struct CudaDriver {
  std::string path;  // as the caller gave it

  CudaFunction<unsigned> init{"cuInit"};
  CudaFunction<int, const char**> get_error_name{"cuGetErrorName"};
  CudaFunction<int, const char**> get_error_string{"cuGetErrorString"};
  CudaFunction<int*, int> device_get{"cuDeviceGet"};
  CudaFunction<void**, int> primary_context_retain{"cuDevicePrimaryCtxRetain"};
  CudaFunction<void*> context_push{"cuCtxPushCurrent_v2"};
  CudaFunction<void**> context_pop{"cuCtxPopCurrent_v2"};
  CudaFunction<int*> exchange_capture_mode{"cuThreadExchangeStreamCaptureMode"};
  CudaFunction<void*, int, CudaPointer> pointer_get_attribute{"cuPointerGetAttribute"};
  CudaFunction<void*, int> device_get_uuid{"cuDeviceGetUuid"};
  CudaFunction<CudaPointer*, size_t> memory_alloc{"cuMemAlloc_v2"};
  CudaFunction<CudaPointer> memory_free{"cuMemFree_v2"};
  CudaFunction<CudaPointer, unsigned char, size_t, void*> memory_set{"cuMemsetD8Async"};
  CudaFunction<void**, size_t, unsigned> host_alloc{"cuMemHostAlloc"};
  CudaFunction<void*> host_free{"cuMemFreeHost"};
  CudaFunction<void*, CudaPointer, size_t, void*> copy_to_host{"cuMemcpyDtoHAsync_v2"};
  CudaFunction<CudaPointer, const void*, size_t, void*> copy_to_device{"cuMemcpyHtoDAsync_v2"};
  CudaFunction<int*, int*> get_stream_priorities{"cuCtxGetStreamPriorityRange"};  // the least, the greatest
  CudaFunction<void**, unsigned, int> stream_create{"cuStreamCreateWithPriority"};
  CudaFunction<void*> stream_destroy{"cuStreamDestroy_v2"};
  CudaFunction<void*, void*, unsigned> stream_wait_event{"cuStreamWaitEvent"};
  CudaFunction<void*, void (*)(void*), void*> launch_host_function{"cuLaunchHostFunc"};
  CudaFunction<void**, unsigned> event_create{"cuEventCreate"};
  CudaFunction<void*> event_destroy{"cuEventDestroy_v2"};
  CudaFunction<void*, void*> event_record{"cuEventRecord"};
  CudaFunction<void*> event_query{"cuEventQuery"};
  CudaFunction<> context_synchronize{"cuCtxSynchronize"};

  // New in CUDA 12.5; null for older drivers.
  CudaFunction<void*, void*> context_record_event{"cuCtxRecordEvent"};

  // "<call> failed on <where>: <name of the error> (<code>), <what the driver says about it>". REQUIRES: it failed.
  Status Failed(const char* call, int code, const std::string& where) const;

  template <typename... Parameters, typename... Arguments>
  Status Call(const std::string& where, const CudaFunction<Parameters...>& function, Arguments... arguments) const {
    const int code = function.pointer(arguments...);
    return code == kCudaSuccess ? Status::Ok() : Failed(function.name, code, where);
  }
};

// Finds the device on which `address` lies, with the driver library at `driver_path`. kInvalid: the driver cannot be
// opened, and the message says what to do; or the address lies on no device.
Status FindCudaDevice(const std::string& driver_path, const void* address, Device** device);

}  // namespace farandole
