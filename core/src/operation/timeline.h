// Records the operations of this process for a trace.
//
//   Operation::Complete, WorkQueue -> Record -> queue -> Take
//
// Record takes tens of nanoseconds and never waits for a file system: a Python thread takes the records every 200 ms
// and writes them (core/python/farandole/_runtime/trace_writer.py). If the queue is full, records are dropped and
// counted. A process has one timeline, which is off until Start, and continues from one world to the next.
//
// Thread safety: any thread may call anything, except that one thread at a time may call Start.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace farandole {

struct TraceRecord {
  // kTask: moved the data of `tensors` operations from `started` to `done`. kBatch: all ranks agreed on `tensors`
  // operations at `started`.
  enum class What : uint8_t { kOperation, kTask, kBatch };
  static constexpr size_t kNameBytes = 72;

  // Nanoseconds of the monotonic clock; 0: not reached. Small operations have neither `agreed` nor `started`.
  int64_t submitted = 0;
  int64_t agreed = 0;   // this rank knew that all ranks had arrived
  int64_t started = 0;  // its data began to move
  int64_t done = 0;
  int64_t bytes = 0;
  int32_t process_set = 0;
  uint32_t tensors = 0;
  OpKind kind = OpKind::kAllreduce;
  What what = What::kOperation;
  bool failed = false;
  std::array<char, kNameBytes> name{};  // zero at the end

  // Keeps the end of a name that is too long, since the ends differ more.
  void SetName(const std::string& whole);
};

class Timeline {
 public:
  // Drops what threads have recorded since the former timeline stopped.
  static void Start(bool marks_batches);
  static void Stop();
  static void ForgetInChild();  // after a fork: the parent's timeline is not the child's

  static bool on() { return on_.load(std::memory_order_relaxed); }
  static bool marks_batches() { return marks_batches_.load(std::memory_order_relaxed); }
  // Returns the time while a timeline is recorded, else 0.
  static int64_t Timestamp() { return on() ? NowNs() : 0; }
  static int64_t NowNs() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Now().time_since_epoch()).count();
  }

  static void Record(const TraceRecord& record);
  static bool Take(TraceRecord* record);  // removes the oldest; false if there is none
  static uint64_t TakeLost();             // the number dropped since the last call

 private:
  inline static std::atomic<bool> on_{false}, marks_batches_{false};
};

// ---- records of operations, and ranges for Nvidia's profilers. While off, each costs one load of an atomic. Any
// thread, except where a comment says otherwise.

class Operation;
struct PlannedTask;
struct ReadyOperation;

// Records an operation that has ended. REQUIRES: it was submitted while a timeline was recorded.
void RecordOperation(const Operation& operation);

// For the holder of the ProgressLock.
void RecordBatch(const std::vector<ReadyOperation>& batch);  // all ranks have agreed on these operations
void RecordStart(PlannedTask* planned);                      // the task's data begin to move
void RecordTask(const PlannedTask& planned);                 // the task's data have moved

// Marks an operation as a range, "farandole allreduce 'grad.w'", from its call to its end. The profiler's library is
// opened once, at run time, if a setting names it.
class Nvtx {
 public:
  // library: a name or path; "" for none. A missing library is not an error: then there are no ranges.
  static void Open(const std::string& library);
  static bool on() { return start_.load(std::memory_order_acquire) != nullptr; }

  static uint64_t Begin(const Operation& operation);  // 0 without a profiler
  static void End(uint64_t range);

 private:
  using Start = uint64_t (*)(const char* text);
  using Stop = void (*)(uint64_t range);
  inline static std::atomic<Start> start_{nullptr};
  inline static std::atomic<Stop> stop_{nullptr};  // set before start_
};

}  // namespace farandole
