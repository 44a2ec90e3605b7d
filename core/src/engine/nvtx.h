// Ranges for Nvidia's profilers: an operation, from its call to its end, as "farandole allreduce 'grad.w'". Their
// library is looked up at run time, once, and only where somebody wants it. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace farandole {

class Operation;

class Nvtx {
 public:
  // A name or a path; "" for none. Not to be found is no error: there is nobody to look at the ranges.
  static void Open(const std::string& library);
  static bool on() { return start_.load(std::memory_order_acquire) != nullptr; }

  // 0 where nobody looks.
  static uint64_t Begin(const Operation& operation);
  static void End(uint64_t range);

 private:
  using Start = uint64_t (*)(const char* text);
  using Stop = void (*)(uint64_t range);
  inline static std::atomic<Start> start_{nullptr};
  inline static std::atomic<Stop> stop_{nullptr};
};

}  // namespace farandole
