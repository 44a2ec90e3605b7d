// NVIDIA's devices, through functions of the CUDA driver that are looked up in its library at run time. No header of
// CUDA is included: the names and parameters below are the driver's stable binary interface, the same since CUDA 10.1.
// So one build works with every driver, and on machines without a driver.
//
// A driver is opened once per path, a device once per driver. Both stay open until the process ends, since frameworks
// use them, too.
#include <dlfcn.h>
#include <fcntl.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "common/dynamic_library.h"
#include "device/device.h"
#include "transport/shm/doorbell.h"

namespace farandole {
namespace {

// Numbers and types of the driver's interface.
using CudaPointer = unsigned long long;  // CUdeviceptr
constexpr int kCudaSuccess = 0;
constexpr int kCudaErrorNotReady = 600;
constexpr int kCudaPointerMemoryType = 2;     // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kCudaPointerDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned kCudaMemoryTypeHost = 1;
constexpr unsigned kCudaEventDisableTiming = 2;
constexpr unsigned kCudaStreamNonBlocking = 1;  // not ordered by the legacy default stream
constexpr int kCudaCaptureModeRelaxed = 2;

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
  Status Failed(const char* call, int code, const std::string& where) const {
    const char* error = nullptr;
    const char* meaning = nullptr;
    get_error_name.pointer(code, &error);
    get_error_string.pointer(code, &meaning);
    return Internal(call, " failed on ", where, ": ", (error != nullptr ? error : "unknown CUDA error"), " (", code,
                    ")", (meaning != nullptr ? std::string(", ") + meaning : ""));
  }

  template <typename... Parameters, typename... Arguments>
  Status Call(const std::string& where, const CudaFunction<Parameters...>& function, Arguments... arguments) const {
    const int code = function.pointer(arguments...);
    return code == kCudaSuccess ? Status::Ok() : Failed(function.name, code, where);
  }
};

const char* LookUpAll(void* library, CudaDriver* d) {
  return LookUp(library, &d->init, &d->get_error_name, &d->get_error_string, &d->device_get, &d->primary_context_retain,
                &d->context_push, &d->context_pop, &d->exchange_capture_mode, &d->pointer_get_attribute,
                &d->device_get_uuid, &d->memory_alloc, &d->memory_free, &d->memory_set, &d->host_alloc, &d->host_free,
                &d->copy_to_host, &d->copy_to_device, &d->get_stream_priorities, &d->stream_create, &d->stream_destroy,
                &d->stream_wait_event, &d->launch_host_function, &d->event_create, &d->event_destroy, &d->event_record,
                &d->event_query, &d->context_synchronize);
}

Status Open(const std::string& path, CudaDriver* driver) {
  // RTLD_LOCAL, so that a framework in this process does not find these names before its own.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Invalid(
        "the CUDA driver cannot be opened: looked for ", path,
        (path.find('/') == std::string::npos ? " where the system looks for libraries" : ""), " (", dlerror(),
        "); install NVIDIA's driver (in a container: start it with --gpus all), set FARANDOLE_CUDA_DRIVER to the "
        "path of its libcuda.so.1, or hand in a tensor in host memory");
  }
  driver->path = path;
  if (const char* const missing = LookUpAll(library, driver)) {
    return Invalid("the CUDA driver ", path, " has no function ", missing,
                   "; it is no CUDA driver, or older than CUDA 10.1: update NVIDIA's driver");
  }
  LookUp(library, &driver->context_record_event);
  return driver->Call(path, driver->init, 0u);
}

// One device of one driver. It does not change after Open, so threads share it without a lock.
class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDriver& driver, int ordinal)
      : driver_(driver), name_(std::string(NameOf(DeviceKind::kCuda)) + " " + std::to_string(ordinal)) {}

  // Frameworks use the primary context, too, so their memory and streams are valid here, and ours there. It is never
  // released, since the process needs it as long as it trains.
  Status Open(int ordinal) {
    int handle = 0;
    FRD_RETURN_IF_ERROR(driver_.Call(name_, driver_.device_get, &handle, ordinal));
    FRD_RETURN_IF_ERROR(driver_.Call(name_, driver_.device_get_uuid, static_cast<void*>(identity_.data()), handle));
    return driver_.Call(name_, driver_.primary_context_retain, &context_, handle);
  }

  std::string name() const override { return name_; }
  const DeviceIdentity& identity() const override { return identity_; }

  Status Within(const std::function<Status()>& calls) override {
    Scope scope(*this);
    FRD_RETURN_IF_ERROR(scope.status());
    return calls();
  }

  Status Allocate(size_t size_bytes, void** memory) override {
    return Run(driver_.memory_alloc, reinterpret_cast<CudaPointer*>(memory), size_bytes);
  }
  void Free(void* memory) override { Run(driver_.memory_free, reinterpret_cast<CudaPointer>(memory)); }
  Status Zero(void* memory, size_t size_bytes, Stream stream) override {
    return Run(driver_.memory_set, reinterpret_cast<CudaPointer>(memory), static_cast<unsigned char>(0), size_bytes,
               stream);
  }

  Status AllocatePinned(size_t size_bytes, void** memory) override {
    return Run(driver_.host_alloc, memory, size_bytes, 0u);
  }
  void FreePinned(void* memory) override { Run(driver_.host_free, memory); }
  // The greatest priority: other ranks wait for the work in this stream, so it precedes computation launched later.
  Status CreateStream(Stream* stream) override {
    int least = 0, greatest = 0;
    FRD_RETURN_IF_ERROR(Run(driver_.get_stream_priorities, &least, &greatest));
    return Run(driver_.stream_create, stream, kCudaStreamNonBlocking, greatest);
  }
  void DestroyStream(Stream stream) override { Run(driver_.stream_destroy, stream); }
  Status CreateEvent(Event* event) override { return Run(driver_.event_create, event, kCudaEventDisableTiming); }
  void DestroyEvent(Event event) override { Run(driver_.event_destroy, event); }

  Status CopyToHost(void* to, const void* from, size_t size_bytes, Stream stream) override {
    return Run(driver_.copy_to_host, to, reinterpret_cast<CudaPointer>(from), size_bytes, stream);
  }
  Status CopyToDevice(void* to, const void* from, size_t size_bytes, Stream stream) override {
    return Run(driver_.copy_to_device, reinterpret_cast<CudaPointer>(to), from, size_bytes, stream);
  }
  Status WaitInStream(Stream stream, Event event) override { return Run(driver_.stream_wait_event, stream, event, 0u); }
  Status Record(Event event, Stream stream) override { return Run(driver_.event_record, event, stream); }
  Status MarkAll(Event* event) override {
    *event = nullptr;
    if (driver_.context_record_event.pointer == nullptr) return Run(driver_.context_synchronize);
    FRD_RETURN_IF_ERROR(CreateEvent(event));
    const Status marked = Run(driver_.context_record_event, context_, *event);
    if (!marked.ok()) DestroyEvent(std::exchange(*event, nullptr));
    return marked;
  }
  Status Notify(Stream stream, void (*function)(void*), void* argument) override {
    return Run(driver_.launch_host_function, stream, function, argument);
  }

  Status HasHappened(Event event, bool* happened) override {
    *happened = event == nullptr;
    if (*happened) return Status::Ok();
    Scope scope(*this);
    FRD_RETURN_IF_ERROR(scope.status());
    const int code = driver_.event_query.pointer(event);
    *happened = code == kCudaSuccess;
    if (*happened || code == kCudaErrorNotReady) return Status::Ok();
    return driver_.Failed(driver_.event_query.name, code, name_);
  }

 private:
  // Makes the context current in this thread while the Scope lives. The relaxed capture mode allows our calls, which
  // belong to no graph, while a framework captures a graph in another thread.
  class Scope {
   public:
    explicit Scope(const CudaDevice& device) : device_(device), driver_(device.driver_) {
      status_ = driver_.Call(device.name_, driver_.context_push, device.context_);
      if (status_.ok()) driver_.exchange_capture_mode.pointer(&capture_mode_);
    }
    ~Scope() {
      if (!status_.ok()) return;
      driver_.exchange_capture_mode.pointer(&capture_mode_);
      void* popped = nullptr;
      driver_.context_pop.pointer(&popped);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    const Status& status() const { return status_; }

   private:
    const CudaDevice& device_;
    const CudaDriver& driver_;
    int capture_mode_ = kCudaCaptureModeRelaxed;  // the driver exchanges it for the thread's own mode
    Status status_;
  };

  template <typename Function, typename... Arguments>
  Status Run(const Function& function, Arguments... arguments) {
    Scope scope(*this);
    FRD_RETURN_IF_ERROR(scope.status());
    return driver_.Call(name_, function, arguments...);
  }

  const CudaDriver& driver_;
  const std::string name_;
  DeviceIdentity identity_{};
  void* context_ = nullptr;
};

// kInvalid: the address is host memory, or unknown to the driver.
Status OrdinalOf(const CudaDriver& driver, const void* address, int* ordinal) {
  const auto pointer = reinterpret_cast<CudaPointer>(address);
  unsigned memory_type = 0;
  const int code = driver.pointer_get_attribute.pointer(&memory_type, kCudaPointerMemoryType, pointer);
  if (code != kCudaSuccess || memory_type == kCudaMemoryTypeHost) {
    char text[32];
    std::snprintf(text, sizeof(text), "%p", address);
    const Status reason = code == kCudaSuccess ? Invalid("it is host memory")
                                               : driver.Failed(driver.pointer_get_attribute.name, code, driver.path);
    return Invalid("the CUDA driver does not have the address ", text, " on a device: ", reason.message(),
                   "; say that the tensor is in host memory, or check its address");
  }
  return driver.Call(driver.path, driver.pointer_get_attribute, static_cast<void*>(ordinal), kCudaPointerDeviceOrdinal,
                     pointer);
}

// Finds the device with the driver library at `path`.
Status FindCudaDevice(const std::string& path, const void* address, Device** device) {
  const CudaDriver* driver = nullptr;
  FRD_RETURN_IF_ERROR(OpenOnce(path, &driver, [&](CudaDriver* fresh) { return Open(path, fresh); }));
  int ordinal = 0;
  FRD_RETURN_IF_ERROR(OrdinalOf(*driver, address, &ordinal));
  const auto open = [&](CudaDevice* fresh) { return fresh->Open(ordinal); };
  CudaDevice* found = nullptr;
  FRD_RETURN_IF_ERROR(OpenOnce(std::make_pair(driver, ordinal), &found, open, *driver, ordinal));
  *device = found;
  return Status::Ok();
}

// ---- of every kind (device.h)

// Runs in a thread of the device's driver. The argument shares the descriptor, so the descriptor is still open.
void SignalAndDrop(void* argument) {
  const std::unique_ptr<std::shared_ptr<Descriptor>> event(static_cast<std::shared_ptr<Descriptor>*>(argument));
  SignalEvent((*event)->get());
}

}  // namespace

const char* NameOf(DeviceKind kind) { return kind == DeviceKind::kCuda ? "CUDA device" : "host"; }

Status Devices::Find(DeviceKind kind, const void* address, Device** device) const {
  if (kind == DeviceKind::kCuda) return FindCudaDevice(cuda_driver_, address, device);
  return Internal("memory of the host has no device");
}

Waker::Waker(int wake_event) {
  if (wake_event >= 0) event_ = std::make_shared<Descriptor>(fcntl(wake_event, F_DUPFD_CLOEXEC, 0));
}

void Waker::WakeAfter(Device* device, Stream stream) const {
  if (!event_) return;
  auto argument = std::make_unique<std::shared_ptr<Descriptor>>(event_);
  if (device->Notify(stream, &SignalAndDrop, argument.get()).ok()) argument.release();  // SignalAndDrop owns it now
}

}  // namespace farandole
