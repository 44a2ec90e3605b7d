// The tasks of this rank, in the order of the log, and the backend that performs the first of them.
//
//   Add (an agreed batch) -> tasks; inputs on a device are copied in ahead of their task's turn
//   Run                   -> the first task's backend: Start, Poll until it is done; then the next task
//   PollCopies            -> results are copied out
//
// ProgressLoop owns the queue and calls it with the ProgressLock; any thread may call SleepAtMost. The queue ends
// no operation: it returns those that are over, and ProgressLoop completes them.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "backends/table.h"
#include "engine/failures.h"
#include "execution/device_copies.h"
#include "operation/batch.h"
#include "world/world.h"

namespace farandole {

struct Wait;

class WorkQueue {
 public:
  WorkQueue(World* world, const Settings& settings, const BackendList& backend_list);
  Status Open() { return backends_.Open(); }  // see BackendTable::Open

  // Appends the tasks of a batch, and then its removals of process sets: no later task belongs to such a set.
  void Add(const std::vector<ReadyOperation>& batch, std::vector<PlannedTask> tasks);

  using Ended = HostCopies::Completed;  // an operation that is over, with its status
  struct Outcome {
    bool moved = false;
    std::optional<int> removed_set;
    std::optional<EpochEnd> end;  // the epoch cannot go on
    bool may_be_peer = false;     // another rank's end may be the cause of `end`, and is then to blame
  };
  // Goes on with the first task. The caller completes `ended` before the next task begins. A failure is final: until
  // Cancel every call returns it again without calling the backend.
  Outcome Run(std::vector<Ended>* ended);
  // Returns whether it did anything.
  bool PollCopies(std::vector<Ended>* ended);

  // Gives up all tasks and appends their operations to `cancelled`; no backend touches their memory any more once the
  // transport is quiet. Waits for a device that still copies from or to that memory, where the operation has no event
  // to tell its owner so.
  void Cancel(std::vector<OperationPtr>* cancelled, std::vector<Ended>* ended);
  // Waits for results that are being copied to a device, a few seconds at most.
  void AwaitCopies(std::vector<Ended>* ended);

  // REQUIRES: it is empty, and stays so.
  void CloseBackends() { backends_.Close(); }

  bool empty() const { return tasks_.empty(); }
  // Appends what the first task waits for, if it does not go on.
  void AddStalledTask(TimePoint now, std::vector<Wait>* waits) const;

  // How long a thread may sleep: no longer than this, or until the current backend must be polled again, as of
  // NoteLongestSleep.
  int SleepAtMost(int timeout_ms) const {
    const int longest_ms = longest_sleep_ms_.load(std::memory_order_relaxed);
    return longest_ms < 0 ? timeout_ms : std::min(timeout_ms, longest_ms);
  }
  void NoteLongestSleep();  // at the end of a pass

 private:
  Outcome RemoveSet(std::vector<Ended>* ended);
  Status SetUp(PlannedTask* planned, Task** to_run);
  void BeginInLibrary(const Task& task);
  void FinishTask(PlannedTask* planned, std::vector<Ended>* ended);
  void PrependTitle(std::vector<Ended>* ended, size_t first) const;

  World* const world_;
  const Settings settings_;
  BackendTable backends_;
  HostCopies copies_;
  std::deque<PlannedTask> tasks_;
  std::map<int, uint64_t> started_;  // tasks, by process set
  Backend* running_ = nullptr;       // performs tasks_.front()
  std::optional<Outcome> failed_;
  TimePoint last_progress_ = Now();
  std::atomic<int> longest_sleep_ms_{-1};
};

}  // namespace farandole
