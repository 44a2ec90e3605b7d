// Operations leave records for a timeline and ranges for Nvidia's profilers. Both are off, and cost one look at an
// atomic, until they are asked for. Any thread, but for what a batch records.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace farandole {

class Operation;
struct PlannedTask;
struct ReadyOperation;

// Records an operation that has ended. REQUIRES: it was submitted while a timeline was recorded.
void RecordOperation(const Operation& operation);

// The three points of an agreed batch. The holder of the ProgressLock calls them.
void RecordBatch(const std::vector<ReadyOperation>& batch);  // all ranks have agreed on these operations
void StampStart(PlannedTask* planned);                       // its data begin to move
void RecordTask(const PlannedTask& planned);                 // its data have moved

// Shows an operation as a range, "farandole allreduce 'grad.w'", from its call to its end. The profiler's library is
// opened at run time, once, where a setting names it.
class Nvtx {
 public:
  // A name or a path; "" for none. A missing library is no error: then nobody looks at the ranges.
  static void Open(const std::string& library);
  static bool on() { return start_.load(std::memory_order_acquire) != nullptr; }

  static uint64_t Begin(const Operation& operation);  // 0 where nobody looks
  static void End(uint64_t range);

 private:
  using Start = uint64_t (*)(const char* text);
  using Stop = void (*)(uint64_t range);
  inline static std::atomic<Start> start_{nullptr};
  inline static std::atomic<Stop> stop_{nullptr};  // set before start_
};

}  // namespace farandole
