// Records what operations do, from any thread, for a file that a thread of its own writes.
//
//   Operation::Complete, ProgressLoop -> Record -> ring          tens of nanoseconds; full: dropped and counted
//   the writer, every 200 ms          ring -> events -> file
//
// However slow the file system is, no other thread waits for it. Stop, too, leaves a writer alone that does not come
// back. A process has one timeline, which is off until Start. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "common/clock.h"
#include "common/status.h"
#include "engine/trace/events.h"

namespace farandole {

struct TimelineOptions {
  std::string path;
  std::string title;  // of this rank
  int rank = 0;
  int64_t offset_ns = 0;  // by how much this rank's clock is ahead of rank 0's
  bool marks_batches = false;
};

class Timeline {
 public:
  // kInvalid: the file cannot be made, or a timeline is being recorded already.
  static Status Start(const TimelineOptions& options);
  // Writes what is left. False when there was none.
  static bool Stop();
  // After a fork: the child has no writer, and Stop finds none.
  static void Forget();

  static bool on() { return on_.load(std::memory_order_relaxed); }
  static bool marks_batches() { return marks_batches_.load(std::memory_order_relaxed); }
  // The time now where one is recorded, else 0.
  static int64_t Stamp() { return on() ? NowNs() : 0; }
  static int64_t NowNs() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Now().time_since_epoch()).count();
  }
  static void Record(const TraceRecord& record);

 private:
  inline static std::atomic<bool> on_{false}, marks_batches_{false};
};

}  // namespace farandole
