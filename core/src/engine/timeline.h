// Records what operations do, from any thread, for a file that a thread of its own writes.
//
//   Operation::Complete, ProgressLoop -> Record -> ring          tens of nanoseconds; full: dropped and counted
//   the writer, every 200 ms          ring -> events -> file
//
// However slow the file system is, no other thread waits for it, and Stop abandons a writer that does not return. A
// process has one timeline, which is off until Start. Any thread.
//
// Events are those of Chrome's Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open. A process
// of the trace is a rank. An operation is an asynchronous event ("b" to "e") under its name and kind, with its phases
// inside; tasks of backends, which carry the data of several operations, are on a thread of their own.
//
//   gradient.3 (allreduce)   [ submitted                              done ]
//                              [ NEGOTIATE ][ QUEUE ][ ALLREDUCE          ]
//   backend                                         [ allreduce of 5     ]
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "common/types.h"

namespace farandole {

struct TraceRecord {
  enum class What : uint8_t { kOperation, kWork, kCycle };
  static constexpr size_t kNameBytes = 72;

  // Nanoseconds of the monotonic clock; 0: not reached. Small operations have neither of the middle two.
  int64_t submitted = 0;
  int64_t agreed = 0;   // this rank knew that all had arrived
  int64_t started = 0;  // its data began to move
  int64_t done = 0;
  int64_t bytes = 0;
  int32_t process_set = 0;
  uint32_t tensors = 0;
  OpKind kind = OpKind::kAllreduce;
  What what = What::kOperation;
  bool failed = false;
  std::array<char, kNameBytes> name{};  // zero at the end

  // Keeps the end of a longer name, which tells more.
  void SetName(const std::string& whole);
};

// ---- events, pure

// The events that describe the rank; the first of a file. `zero_unix_ns`: the time of day at the trace's time 0, by
// which traces of other programs find their place.
std::string DescribeRank(int rank, const std::string& title, int64_t zero_unix_ns);
// The record's events, with ",\n" between them. `offset_ns` is how far this rank's clock is ahead of rank 0's; `number`
// tells operations of one file apart.
std::string EventsOf(const TraceRecord& record, int rank, int64_t offset_ns, uint64_t number);
// An event that says how many operations were not recorded until then.
std::string EventOfLoss(uint64_t lost, int rank, int64_t at_ns);

// ---- recording

struct TimelineOptions {
  std::string path;
  std::string title;  // of this rank
  int rank = 0;
  int64_t offset_ns = 0;  // how far this rank's clock is ahead of rank 0's
  bool marks_batches = false;
};

class Timeline {
 public:
  // kInvalid: the file cannot be made, or a timeline is being recorded already.
  static Status Start(const TimelineOptions& options);
  // Goes on in another file; the one before is complete then. kInvalid: there is no timeline, or the file cannot be
  // made.
  static Status Continue(const std::string& path);
  // Writes what is left. Returns false when there was no timeline.
  static bool Stop();
  // After a fork: the child has no writer, and Stop finds none.
  static void Forget();

  static bool on() { return on_.load(std::memory_order_relaxed); }
  static bool marks_batches() { return marks_batches_.load(std::memory_order_relaxed); }
  // Returns the time while a timeline is recorded, else 0.
  static int64_t Stamp() { return on() ? NowNs() : 0; }
  static int64_t NowNs() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Now().time_since_epoch()).count();
  }
  static void Record(const TraceRecord& record);

 private:
  inline static std::atomic<bool> on_{false}, marks_batches_{false};
};

// ---- records of operations, and ranges for Nvidia's profilers. Both are off, and cost one look at an atomic, until
// they are asked for. Any thread, except where a comment says otherwise.

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
  // A name or a path; "" for none. A missing library is no error: then there are no ranges.
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
