// A CUDA driver without a GPU, for tests: a library with the driver's names, whose streams are queues that run late.
//
// A thread of the stream does the stream's work after a delay; the target of a copy is filled with garbage at once. The
// host cannot read or write addresses of device memory. So code that forgets to wait gets wrong values or crashes. A
// call that the driver's rules forbid returns the error that a driver returns, or is noted as a misuse. Tests load the
// library by its path, once per process, and reach it by its function `fake_cuda`.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "support/beside.h"

namespace farandole {

class FakeCuda {
 public:
  virtual ~FakeCuda() = default;

  // Clears failures, misuses and counts; streams run without delay again.
  virtual void Reset() = 0;
  // The time that each later piece of work in a stream takes.
  virtual void SetDelay(std::chrono::microseconds delay) = 0;
  // The call fails with `code` after `successes` more that succeed, once or always.
  virtual void Fail(const std::string& call, int code, int successes = 0, bool for_good = false) = 0;
  // Behaves as if another thread captured a graph in the global mode.
  virtual void SetCapturing(bool capturing) = 0;

  // From now on all unknown memory counts as that device's memory, at the same address. For frameworks with host memory
  // only, which take it for a device's.
  virtual void OwnEverything(int ordinal) = 0;

  // The calls of a framework.
  virtual void* Allocate(int ordinal, size_t size_bytes) = 0;
  virtual void Free(void* memory) = 0;
  virtual void* MakeStream(int ordinal) = 0;
  // The kernel may read and write Contents.
  virtual void Launch(void* stream, std::function<void()> kernel) = 0;
  virtual void* RecordNewEvent(void* stream) = 0;
  virtual void Wait(void* stream, void* event) = 0;
  virtual void Synchronize(void* stream) = 0;
  // The bytes behind an address of device memory.
  virtual void* Contents(const void* memory) = 0;

  // The calls of a library that works on devices. Null where the range does not lie on that device.
  virtual void* Contents(const void* memory, size_t size_bytes, int ordinal) = 0;
  virtual int CurrentDevice() = 0;  // of this thread; -1: none
  virtual int DeviceOf(void* stream) = 0;
  virtual std::string IdentityOf(int ordinal) = 0;  // of the hardware, 16 bytes; heeds CUDA_VISIBLE_DEVICES

  virtual std::vector<std::string> misuses() = 0;
  virtual int calls(const std::string& name) = 0;
  virtual size_t pinned_bytes() = 0;  // allocated and not freed
};

// "_before_12_5" is a driver without the functions that are new in CUDA 12.5.
inline std::string FakeCudaPath(const std::string& which = "") {
  return PathBesideTests("libfake_cuda" + which + ".so");
}

inline FakeCuda& OpenFakeCuda(const std::string& path = FakeCudaPath()) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* const open = library != nullptr ? reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda")) : nullptr;
  if (open == nullptr) {
    std::fprintf(stderr, "no fake driver: %s\n", dlerror());
    std::abort();
  }
  return *open();
}

}  // namespace farandole
