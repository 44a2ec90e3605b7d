// The driver's error numbers, and what it says of them.
#pragma once

#include <map>
#include <utility>

namespace {

enum Code {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
};

inline const std::map<int, std::pair<const char*, const char*>>& Errors() {
  static const std::map<int, std::pair<const char*, const char*>> errors = {
      {kInvalidValue, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
      {kOutOfMemory, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
      {kNotInitialized, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
      {kNoDevice, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
      {kInvalidContext, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
      {kInvalidHandle, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
      {kIllegalAddress, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
      {kLaunchFailed, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
      {kCaptureUnsupported,
       {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
  };
  return errors;
}

inline int ErrorText(int code, const char** text, bool name) {
  const auto found = Errors().find(code);
  if (found == Errors().end()) return kInvalidValue;
  *text = name ? found->second.first : found->second.second;
  return kSuccess;
}

}  // namespace
