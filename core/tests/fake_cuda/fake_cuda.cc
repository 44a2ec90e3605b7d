// The driver's calls, by their names; what they do is in driver.h.
#include "driver.h"

#define DRIVER_CALL extern "C" __attribute__((visibility("default"))) int

namespace {

// Both ways. `host` must still be pinned when the copy is made.
int Copy(const char* name, void* stream_handle, void* host, const void* device, size_t size_bytes, bool to_host) {
  Driver& driver = TheDriver();
  if (const int code = driver.Enter(name, true)) return code;
  const auto stream = driver.stream(stream_handle);
  if (!stream) return kInvalidHandle;
  if (stream->ordinal != driver.current_ordinal()) return kInvalidContext;
  char* const contents = driver.Resolve(device, size_bytes);
  if (contents == nullptr) return kInvalidValue;
  if (!driver.IsPinned(host, size_bytes)) driver.Misuse(std::string(name) + ": the host memory is not pinned");
  if (to_host) std::memset(host, kGarbage, size_bytes);
  driver.Enqueue(stream.get(), [=, call = std::string(name)] {
    if (!TheDriver().IsPinned(host, size_bytes)) return TheDriver().Misuse(call + ": the memory went before the copy");
    to_host ? std::memcpy(host, contents, size_bytes) : std::memcpy(contents, host, size_bytes);
  });
  return kSuccess;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) farandole::FakeCuda* fake_cuda() { return &TheDriver(); }

DRIVER_CALL cuInit(unsigned) {
  const int code = TheDriver().Enter("cuInit");
  if (code == kSuccess) TheDriver().Initialize();
  return code;
}
DRIVER_CALL cuGetErrorName(int code, const char** text) { return ErrorText(code, text, true); }
DRIVER_CALL cuGetErrorString(int code, const char** text) { return ErrorText(code, text, false); }

DRIVER_CALL cuDeviceGet(int* handle, int ordinal) {
  if (const int code = TheDriver().Enter("cuDeviceGet")) return code;
  *handle = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? kSuccess : kInvalidDevice;
}
DRIVER_CALL cuDevicePrimaryCtxRetain(void** context, int handle) {
  if (const int code = TheDriver().Enter("cuDevicePrimaryCtxRetain", false, true)) return code;
  *context = TheDriver().context(handle);
  return kSuccess;
}
DRIVER_CALL cuCtxPushCurrent_v2(void* context) {
  if (const int code = TheDriver().Enter("cuCtxPushCurrent_v2")) return code;
  if (context == nullptr) return kInvalidContext;
  TheDriver().Push(static_cast<Context*>(context));
  return kSuccess;
}
DRIVER_CALL cuCtxPopCurrent_v2(void** context) {
  if (const int code = TheDriver().Enter("cuCtxPopCurrent_v2", true)) return code;
  *context = TheDriver().Pop();
  return kSuccess;
}
DRIVER_CALL cuCtxSynchronize() {
  Driver& driver = TheDriver();
  if (const int code = driver.Enter("cuCtxSynchronize", true, true)) return code;
  void* const end = driver.NewEvent();
  driver.RecordAll(static_cast<EventState*>(end), driver.current_ordinal());
  driver.event(end)->Await(1);
  driver.EraseEvent(end);
  return kSuccess;
}
#ifndef FAKE_CUDA_BEFORE_12_5
DRIVER_CALL cuCtxRecordEvent(void* context, void* event_handle) {
  if (const int code = TheDriver().Enter("cuCtxRecordEvent")) return code;
  if (const int code = TheDriver().SpoilCapture("cuCtxRecordEvent")) return code;
  const auto event = TheDriver().event(event_handle);
  if (context == nullptr || !event) return kInvalidHandle;
  TheDriver().RecordAll(event.get(), static_cast<Context*>(context)->ordinal);
  return kSuccess;
}
#endif
DRIVER_CALL cuThreadExchangeStreamCaptureMode(int* mode) {
  if (const int code = TheDriver().Enter("cuThreadExchangeStreamCaptureMode")) return code;
  TheDriver().ExchangeCaptureMode(mode);
  return kSuccess;
}
DRIVER_CALL cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  if (const int code = TheDriver().Enter("cuPointerGetAttribute")) return code;
  const auto* const memory = reinterpret_cast<const void*>(pointer);
  const int ordinal = TheDriver().OrdinalOf(memory);
  const bool pinned = TheDriver().IsPinned(memory, 1);
  if (ordinal < 0 && !pinned) return kInvalidValue;
  if (attribute == 2) *static_cast<unsigned*>(data) = pinned ? 1 : 2;
  if (attribute == 9) *static_cast<int*>(data) = pinned ? 0 : ordinal;
  return attribute == 2 || attribute == 9 ? kSuccess : kInvalidValue;
}

DRIVER_CALL cuDeviceGetUuid(void* uuid, int handle) {
  if (const int code = TheDriver().Enter("cuDeviceGetUuid")) return code;
  std::memcpy(uuid, TheDriver().IdentityOf(handle).data(), 16);
  return kSuccess;
}
DRIVER_CALL cuMemAlloc_v2(unsigned long long* memory, size_t size_bytes) {
  if (const int code = TheDriver().Enter("cuMemAlloc_v2", true, true)) return code;
  *memory = reinterpret_cast<unsigned long long>(TheDriver().Allocate(TheDriver().current_ordinal(), size_bytes));
  return kSuccess;
}
DRIVER_CALL cuMemFree_v2(unsigned long long memory) {
  if (const int code = TheDriver().Enter("cuMemFree_v2", true, true)) return code;
  if (TheDriver().Contents(reinterpret_cast<const void*>(memory)) == nullptr) return kInvalidValue;
  TheDriver().Free(reinterpret_cast<void*>(memory));
  return kSuccess;
}
DRIVER_CALL cuMemsetD8Async(unsigned long long memory, unsigned char value, size_t size_bytes, void* stream_handle) {
  if (const int code = TheDriver().Enter("cuMemsetD8Async", true)) return code;
  const auto stream = TheDriver().stream(stream_handle);
  char* const contents = TheDriver().Resolve(reinterpret_cast<const void*>(memory), size_bytes);
  if (!stream) return kInvalidHandle;
  if (contents == nullptr) return kInvalidValue;
  TheDriver().Enqueue(stream.get(), [=] { std::memset(contents, value, size_bytes); });
  return kSuccess;
}

DRIVER_CALL cuMemHostAlloc(void** memory, size_t size_bytes, unsigned) {
  if (const int code = TheDriver().Enter("cuMemHostAlloc", true, true)) return code;
  *memory = TheDriver().AllocatePinned(size_bytes);
  return kSuccess;
}
DRIVER_CALL cuMemFreeHost(void* memory) {
  if (const int code = TheDriver().Enter("cuMemFreeHost", true, true)) return code;
  return TheDriver().FreePinned(memory) ? kSuccess : kInvalidValue;
}
DRIVER_CALL cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t size_bytes, void* stream) {
  return Copy("cuMemcpyDtoHAsync_v2", stream, to, reinterpret_cast<const void*>(from), size_bytes, true);
}
DRIVER_CALL cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t size_bytes, void* stream) {
  return Copy("cuMemcpyHtoDAsync_v2", stream, const_cast<void*>(from), reinterpret_cast<const void*>(to), size_bytes,
              false);
}

DRIVER_CALL cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (const int code = TheDriver().Enter("cuCtxGetStreamPriorityRange", true)) return code;
  *least = 0;
  *greatest = kGreatestPriority;
  return kSuccess;
}
DRIVER_CALL cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  if (const int code = TheDriver().Enter("cuStreamCreateWithPriority", true)) return code;
  if (flags != 1) TheDriver().Misuse("cuStreamCreateWithPriority: the stream would be ordered by the default stream");
  if (priority != kGreatestPriority) TheDriver().Misuse("cuStreamCreateWithPriority: computation would come first");
  *stream = TheDriver().MakeStream(TheDriver().current_ordinal());
  return kSuccess;
}
DRIVER_CALL cuStreamDestroy_v2(void* stream) {
  if (const int code = TheDriver().Enter("cuStreamDestroy_v2", true)) return code;
  return TheDriver().EraseStream(stream) ? kSuccess : kInvalidHandle;
}
DRIVER_CALL cuStreamWaitEvent(void* stream_handle, void* event_handle, unsigned) {
  if (const int code = TheDriver().Enter("cuStreamWaitEvent", true)) return code;
  const auto stream = TheDriver().stream(stream_handle);
  const auto event = TheDriver().event(event_handle);
  if (!stream || !event) return kInvalidHandle;
  TheDriver().AwaitInStream(stream.get(), event.get());
  return kSuccess;
}
DRIVER_CALL cuLaunchHostFunc(void* stream_handle, void (*function)(void*), void* argument) {
  if (const int code = TheDriver().Enter("cuLaunchHostFunc", true)) return code;
  const auto stream = TheDriver().stream(stream_handle);
  if (!stream) return kInvalidHandle;
  TheDriver().Enqueue(stream.get(), [=] { function(argument); });
  return kSuccess;
}

DRIVER_CALL cuEventCreate(void** event, unsigned) {
  if (const int code = TheDriver().Enter("cuEventCreate", true)) return code;
  *event = TheDriver().NewEvent();
  return kSuccess;
}
DRIVER_CALL cuEventDestroy_v2(void* event) {
  if (const int code = TheDriver().Enter("cuEventDestroy_v2", true)) return code;
  return TheDriver().EraseEvent(event) ? kSuccess : kInvalidHandle;
}
DRIVER_CALL cuEventRecord(void* event_handle, void* stream_handle) {
  if (const int code = TheDriver().Enter("cuEventRecord", true)) return code;
  const auto stream = TheDriver().stream(stream_handle);
  const auto event = TheDriver().event(event_handle);
  if (!stream || !event) return kInvalidHandle;
  TheDriver().Record(event.get(), stream.get());
  return kSuccess;
}
DRIVER_CALL cuEventQuery(void* handle) {
  if (const int code = TheDriver().Enter("cuEventQuery", true, true)) return code;
  const auto event = TheDriver().event(handle);
  if (!event) return kInvalidHandle;
  std::lock_guard<std::mutex> lock(event->mutex);
  return event->reached >= event->recorded ? kSuccess : kNotReady;
}
