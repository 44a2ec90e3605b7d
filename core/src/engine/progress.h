// The progress of this rank: the right to drive it, and one pass of driving.
//
//   ProgressLock   the right to drive; any thread
//   ProgressLoop   one pass over everything that may have something to do; the holder of the lock
//
// There is no thread that does all the work: a thread that waits takes the lock and drives, and the engine's own thread
// drives only while nobody waits. Handing work to another thread would cost two context switches per operation.
//
//   caller        TryTake, or WaitForChange -> drive -> Release   holds it only while it waits
//   loop thread   sleeps in epoll without the lock; tries to take it when woken; parks if a caller has it
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "engine/control.h"
#include "engine/eager.h"
#include "engine/failures.h"
#include "engine/operations.h"
#include "engine/stalls.h"
#include "engine/work_queue.h"
#include "world/world.h"

namespace farandole {

class ProgressLock {
 public:
  bool TryTake() { return !taken_.exchange(true); }
  void Release() {
    taken_.store(false);
    NotifyWaiters();
  }

  // Sleeps until the lock is free, `done` holds, or the time is up. A thread that completes an operation calls
  // NotifyWaiters.
  template <typename Done>
  void WaitForChange(Done done, std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    waiters_.fetch_add(1);
    changed_.wait_for(lock, limit, [&] { return done() || !taken_.load(); });
    waiters_.fetch_sub(1);
  }
  void NotifyWaiters() {
    if (waiters_.load() == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::atomic<bool> taken_{false};
  std::atomic<int> waiters_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Drives the owners of this rank's state, and acts on what they return. An owner never calls back: it knows neither the
// loop nor other owners, except those it is given.
//
//   Eager           data of eager operations                        -> operations that are complete, signs
//   ControlPlane    control connections, poller, coordinator        -> messages for the negotiation, signs
//   WorkQueue       tasks, the backend under way, copies of devices -> operations that are over, an end
//   FailureMonitor  liveness, abort word, the reason                -> an end
//   StallInspector  waits, delays, deadlocks                        -> an end
//
// The negotiation is in Operations, which submitting threads share under its lock. The loop alone completes operations
// and ends the epoch.
class ProgressLoop {
 public:
  ProgressLoop(World* world, Operations* operations, ProgressLock* progress_lock, const Settings& settings,
               const BackendList& backend_list);
  Status Open();  // prepares the poller and the backends; before the first Drive
  // Takes the place of Leave when this rank cannot go on: tells the others why.
  void GiveUp(const Status& reason);

  // One pass. Returns whether it did anything. Never blocks.
  bool Drive();
  // Sleeps until a bell, a message, a death, or the time is up. It wakes earlier where a backend must be polled again.
  // Needs no ProgressLock.
  void Sleep(int timeout_ms) const;
  // Looks at the descriptors in the next pass, whatever the interval: something woke the caller.
  void LookAtDescriptors() { passes_ = 0; }

  // Tells the others that this rank leaves: in good order when nothing is in flight, else as an end of the epoch.
  // Completes what is in flight.
  void Leave();
  // Ends the connections, and frees what libraries hold: the engine itself lives on while the user keeps a handle.
  void Close();

 private:
  // The negotiation's events.
  bool ReadLog();
  void OnMessage(const Bytes& message);
  void Handle(const Negotiation::Event& event);
  void StartBatch(const Negotiation::Event& event);
  bool FinishWithoutTask(const OperationPtr& operation, const Negotiation::Item& item);
  void OnJoinEnd(const Negotiation::Event& event);
  void OnLeft(int rank);

  // Each asks an owner of state, and acts on its results.
  bool AdvanceEager();
  void ActOnSigns();
  bool RunTasks();
  bool EnterDeferred();
  bool SendOutgoing();
  void Tick();
  void Judge(TimePoint now);

  // The end of operations.
  void Finish(const OperationPtr& operation, Status status);
  void FinishAll(const std::vector<WorkQueue::Ended>& ended);
  void FailAll(const Status& reason, bool at_end);
  void FinishWithheld();

  // The end of the epoch.
  void Abort(const EpochEnd& end);
  void TellAll(const EpochEnd& end);
  void EndIfOverdue(TimePoint now);
  bool CheckAbortWord();
  void End(const EpochEnd& end);

  World* const world_;
  Operations* const operations_;
  ProgressLock* const progress_lock_;

  ControlPlane control_;
  WorkQueue work_;
  Eager eager_;
  FailureMonitor failures_;
  StallInspector stalls_;

  // Operations of an epoch that has ended, until no post touches their memory.
  std::vector<WorkQueue::Ended> withheld_;

  unsigned passes_ = 0;
  TimePoint last_tick_ = Now();
  TimePoint last_links_ = Now();
};

}  // namespace farandole
