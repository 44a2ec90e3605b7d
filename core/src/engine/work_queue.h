// The tasks of this rank, in the order of the log, and the back end that performs the first of them.
//
//   Add (an agreed batch) -> tasks; inputs on a device are copied in ahead of their task's turn
//   Run                   -> the first task's back end: Start, Poll until it is done; then the next task
//   PollCopies            -> results are copied out
//
// ProgressLoop owns the queue and calls it with the ProgressLock; longest_sleep_ms alone may be called by any thread.
// The queue ends no operation: it returns those that are over, and ProgressLoop completes them.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <vector>

#include "backends/table.h"
#include "engine/batch.h"
#include "engine/device_copies.h"
#include "engine/failures.h"
#include "world/world.h"

namespace farandole {

struct Wait;

class WorkQueue {
 public:
  WorkQueue(World* world, const Settings& settings, const BackendList& backend_list);
  Status Open() { return backends_.Open(); }  // see BackendTable::Open

  // Appends the tasks of a batch. With an error some may be appended, and the epoch cannot go on.
  Status Add(const std::vector<ReadyOperation>& batch);
  // A process set is removed. REQUIRES: none of its tasks is in the queue.
  void Forget(int set) { backends_.Forget(set); }

  using Ended = HostCopies::Completed;  // an operation that is over, with its status
  struct Outcome {
    bool moved = false;
    bool finished = false;        // the task is done, and the next one may go on
    std::optional<EpochEnd> end;  // the epoch cannot go on
    bool may_be_a_link = false;   // `end` may follow from the end of another rank, which is then to blame
  };
  // Goes on with the first task. Whoever calls completes `ended` before the next task begins. A failure is final: until
  // Cancel every call returns it again, and no back end is asked.
  Outcome Run(std::vector<Ended>* ended);
  // True when something was done.
  bool PollCopies(std::vector<Ended>* ended);

  // Gives up all tasks and returns their operations, whose memory nobody touches any more. A device that still copies
  // from or to that memory is awaited, where its operation could not tell its owner so.
  std::vector<OperationPtr> Cancel(std::vector<Ended>* ended);
  // Waits for results that are on their way to a device, a few seconds at most.
  void AwaitCopies(std::vector<Ended>* ended);

  // REQUIRES: it is empty, and stays so.
  void CloseBackends() { backends_.Close(); }

  bool empty() const { return tasks_.empty(); }
  // Appends what the first task waits for, if it does not go on.
  void AddStandstill(TimePoint now, std::vector<Wait>* waits) const;

  // The back end under way has to be asked again so soon, as of NoteLongestSleep; -1: it need not be asked.
  int longest_sleep_ms() const { return longest_sleep_ms_.load(std::memory_order_relaxed); }
  void NoteLongestSleep();  // at the end of a pass

 private:
  Status Start(PlannedTask* task);
  void FinishTask(PlannedTask* planned, std::vector<Ended>* ended);
  void TellWhere(std::vector<Ended>* ended, size_t first) const;

  World* const world_;
  const int64_t fusion_threshold_bytes_;
  BackendTable backends_;
  HostCopies copies_;
  std::deque<PlannedTask> tasks_;
  Backend* running_ = nullptr;  // performs tasks_.front()
  std::optional<Outcome> failed_;
  TimePoint last_progress_ = Now();
  std::atomic<int> longest_sleep_ms_{-1};
};

}  // namespace farandole
