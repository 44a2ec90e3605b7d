// A CUDA driver without a GPU, for tests: a library with the driver's names, whose streams are queues that run late.
//
// What is asked of a stream happens after a delay, in a thread of the stream; where a copy will land is filled with
// garbage at once. Addresses of device memory cannot be read or written by the host. So code that does not wait for
// what it should wait for gets wrong values or crashes, and a call that the driver's rules forbid is answered with the
// error that a driver gives, or noted as a misuse. Loaded by path, once per process; tests reach it by its function
// `fake_cuda`.
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

  // Forgets failures, misuses and counts; streams are prompt again.
  virtual void Reset() = 0;
  // How long everything in a stream takes that is asked for from now on.
  virtual void SetDelay(std::chrono::microseconds delay) = 0;
  // The call fails with `code` after `successes` more that go well, once, or for good.
  virtual void Fail(const std::string& call, int code, int successes = 0, bool for_good = false) = 0;
  // As if another thread captured a graph in the global mode.
  virtual void SetCapturing(bool capturing) = 0;

  // From now on memory that is not known is that device's, and lies where its address says: for frameworks that have
  // host memory only, and take it for a device's.
  virtual void OwnEverything(int ordinal) = 0;

  // What a framework does.
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

  // What a library that works on devices looks at. Null where the range does not lie on that device.
  virtual void* Contents(const void* memory, size_t size_bytes, int ordinal) = 0;
  virtual int CurrentDevice() = 0;  // of this thread; -1: none
  virtual int DeviceOf(void* stream) = 0;
  virtual std::string IdentityOf(int ordinal) = 0;  // of the hardware, 16 bytes; heeds CUDA_VISIBLE_DEVICES

  virtual std::vector<std::string> misuses() = 0;
  virtual int calls(const std::string& name) = 0;
  virtual size_t pinned_bytes() = 0;  // allocated and not freed
};

// "_before_12_5" is one that lacks what CUDA 12.5 brought.
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
