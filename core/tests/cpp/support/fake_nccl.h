// An NCCL without GPUs, for tests: a library with NCCL's names, on the memory and in the streams of the fake driver
// (fake_cuda.h). Its ranks are threads of one process, or processes.
//
// It is as late as NCCL may be: a call has only begun when it returns, and completes after some polls. It notes a
// breach of NCCL's rules as a misuse: another call meanwhile, a group that is not ended, ranks that make different
// calls, memory or a stream of another device, any use after the end. Tests load the library by its path, once per
// process, and reach it by its function `fake_nccl`.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/beside.h"
#include "support/fake_cuda.h"

namespace farandole {

class FakeNccl {
 public:
  virtual ~FakeNccl() = default;

  // Clears failures, misuses and counts.
  virtual void Reset() = 0;
  virtual void SetVersion(int version) = 0;  // 21803
  // Refuses two ranks on one device, as NCCL does by default.
  virtual void RefuseSharedDevices() = 0;
  // The next call of that name fails.
  virtual void Fail(const std::string& call, int code) = 0;
  // From now on every communicator reports this code as its asynchronous error.
  virtual void FailLater(int code) = 0;
  // Operations that are launched from now on end only by an abort.
  virtual void Hang() = 0;
  // Calls of that name do not return before Release or Reset: all of them, or only the next one.
  virtual void HangIn(const std::string& call) = 0;
  virtual void HangInNext(const std::string& call) = 0;
  virtual void Release() = 0;
  // Operations that are called from now on are never launched.
  virtual void HangBeforeLaunch() = 0;

  virtual std::vector<std::string> misuses() = 0;
  virtual int calls(const std::string& name) = 0;
  virtual int live() = 0;  // communicators neither destroyed nor aborted
  // The sizes of the communicators requested since the last Reset, once for each rank of this process.
  virtual std::vector<int> sizes() = 0;
};

inline std::string FakeNcclPath() { return PathBesideTests("libfake_nccl.so"); }

inline FakeNccl& OpenFakeNccl() {
  void* const library = dlopen(FakeNcclPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* const open = library != nullptr ? reinterpret_cast<FakeNccl* (*)()>(dlsym(library, "fake_nccl")) : nullptr;
  if (open == nullptr) {
    std::fprintf(stderr, "no fake NCCL: %s\n", dlerror());
    std::abort();
  }
  return *open();
}

}  // namespace farandole
