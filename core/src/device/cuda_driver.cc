#include "device/cuda_driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "common/dynamic_library.h"

namespace farandole {
namespace {

const char* LookUpAll(void* library, CudaDriver* d) {
  return LookUp(library, &d->init, &d->get_error_name, &d->get_error_string, &d->device_get, &d->primary_context_retain,
                &d->context_push, &d->context_pop, &d->exchange_capture_mode, &d->pointer_get_attribute,
                &d->device_get_uuid, &d->memory_alloc, &d->memory_free, &d->memory_set, &d->host_alloc, &d->host_free,
                &d->copy_to_host, &d->copy_to_device, &d->get_stream_priorities, &d->stream_create, &d->stream_destroy,
                &d->stream_wait_event, &d->launch_host_function, &d->event_create, &d->event_destroy, &d->event_record,
                &d->event_query, &d->context_synchronize);
}

Status Open(const std::string& path, CudaDriver* driver) {
  // Local: its names are nobody else's business.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Invalid(
        "the CUDA driver cannot be opened: looked for " + path +
        (path.find('/') == std::string::npos ? " where the system looks for libraries" : "") + " (" + dlerror() +
        "); install NVIDIA's driver, set FARANDOLE_CUDA_DRIVER to the path of its libcuda.so.1, or hand in a "
        "tensor in host memory");
  }
  driver->path = path;
  if (const char* const missing = LookUpAll(library, driver)) {
    return Invalid("the CUDA driver " + path + " has no function " + missing +
                   "; it is no CUDA driver, or older than CUDA 10.1: update NVIDIA's driver");
  }
  LookUp(library, &driver->context_record_event);
  return driver->Call(path, driver->init, 0u);
}

}  // namespace

Status CudaDriver::Failed(const char* call, int code, const std::string& where) const {
  const char* error = nullptr;
  const char* meaning = nullptr;
  get_error_name.pointer(code, &error);
  get_error_string.pointer(code, &meaning);
  return Internal(std::string(call) + " failed on " + where + ": " + (error != nullptr ? error : "unknown CUDA error") +
                  " (" + std::to_string(code) + ")" + (meaning != nullptr ? std::string(", ") + meaning : ""));
}

Status OpenCudaDriver(const std::string& path, const CudaDriver** driver) {
  // Never destroyed: at exit other threads may still use them.
  static auto* const mutex = new std::mutex();
  static auto* const opened = new std::map<std::string, std::unique_ptr<const CudaDriver>>();
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<const CudaDriver>& known = (*opened)[path];
  if (!known) {
    auto fresh = std::make_unique<CudaDriver>();
    FRD_RETURN_IF_ERROR(Open(path, fresh.get()));
    known = std::move(fresh);
  }
  *driver = known.get();
  return Status::Ok();
}

}  // namespace farandole
