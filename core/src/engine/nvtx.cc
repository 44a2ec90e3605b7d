#include "engine/nvtx.h"

#include <dlfcn.h>

#include "common/log.h"
#include "engine/operation.h"

namespace farandole {

void Nvtx::Open(const std::string& library) {
  if (library.empty() || on()) return;
  void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);  // never closed: ranges may be open
  if (handle == nullptr) return Log(LogLevel::kInfo, std::string("no ranges for profilers: ") + dlerror());
  const auto start = reinterpret_cast<Start>(dlsym(handle, "nvtxRangeStartA"));
  const auto stop = reinterpret_cast<Stop>(dlsym(handle, "nvtxRangeEnd"));
  if (start == nullptr || stop == nullptr) {
    return Log(LogLevel::kInfo, "no ranges for profilers: " + library + " has no nvtxRangeStartA and nvtxRangeEnd");
  }
  stop_.store(stop);
  start_.store(start, std::memory_order_release);
}

uint64_t Nvtx::Begin(const Operation& operation) {
  const Start start = start_.load(std::memory_order_acquire);
  return start == nullptr ? 0 : start(("farandole " + operation.Title()).c_str());
}

void Nvtx::End(uint64_t range) { stop_.load(std::memory_order_relaxed)(range); }

}  // namespace farandole
