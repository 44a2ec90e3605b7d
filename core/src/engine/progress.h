// ProgressLock is the right to drive this rank; ProgressLoop is what its holder drives, one pass at a time.
//
// No thread does all the work: a thread that waits takes the lock and drives, and the engine's loop thread drives only
// while nobody waits (driver.h). Handing work to another thread would cost two context switches per operation.
//
// Thread safety: any thread may use ProgressLock. Only its holder may use ProgressLoop, except for Sleep.
//
// Invariants:
// 1. Only ProgressLoop ends the epoch, and only it completes operations, except for small ones (operations.h).
// 2. The parts that it drives never call back, and know each other only where their constructors say so.
// 3. After the end of the epoch, operations end only once no transfer touches their memory.
// 4. An operation that a pass has taken from its owner is in one of the member vectors until it ends or is handed on,
//    so an exception cannot lose it.
#pragma once

#include <atomic>
#include <vector>

#include "common/waiting.h"
#include "engine/control.h"
#include "engine/early_sums.h"
#include "engine/failures.h"
#include "engine/operations.h"
#include "engine/stalls.h"
#include "engine/work_queue.h"
#include "world/world.h"

namespace farandole {

class ProgressLock {
 public:
  explicit ProgressLock(WaitList* waiting) : waiting_(waiting) {}

  bool TryTake() { return !taken_.exchange(true); }
  bool is_free() const { return !taken_.load(); }
  void Release() {
    taken_.store(false);
    waiting_->Notify();
  }

  // Takes the lock if it is free; releases it at the end of the scope.
  class Hold {
   public:
    explicit Hold(ProgressLock* lock) : lock_(lock->TryTake() ? lock : nullptr) {}
    ~Hold() {
      if (lock_ != nullptr) lock_->Release();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    explicit operator bool() const { return lock_ != nullptr; }

   private:
    ProgressLock* const lock_;
  };

 private:
  std::atomic<bool> taken_{false};
  WaitList* const waiting_;
};

// Drives the parts that own this rank's state, and acts on what they return. An event may be evidence that a rank has
// ended; an end is a reason to end the epoch.
//
//   EarlySums       messages; sums that begin at submission   -> complete operations, events
//   ControlPlane    control connections, poller, coordinator  -> messages for the negotiation, events
//   WorkQueue       tasks, the active backend, device copies  -> ended operations, an end
//   FailureMonitor  liveness, abort word, the reason          -> an end
//   StallInspector  waits, their limit, the diagnosis         -> an end
//
// The negotiation is in Operations, which submitting threads share under its lock.
class ProgressLoop {
 public:
  ProgressLoop(Operations* operations, const Settings& settings, const BackendList& backend_list);
  Status Open();  // opens the poller and the backends; call it before the first Drive
  // Tells the other ranks that this rank cannot start, and closes. Instead of Leave.
  void GiveUp(const Status& reason);

  // One pass. Returns whether it did anything. Never blocks. An exception in a pass, usually for lack of memory, ends
  // the epoch on all ranks, since it is unknown how far the pass had got. So does one of a caller (Operations::thrown).
  bool Drive() noexcept;
  // Returns whether a pass has something to do, apart from what only the poller or the clock reports. Cheap.
  bool HasWork() const;
  // Sleeps until the doorbell rings, a message or a rank's end arrives, or the time is up; at most until a backend has
  // to be polled again. Any thread.
  void Sleep(int timeout_ms) const;
  // Likewise, for the thread that drives: looks at the descriptors at once.
  void SleepAndLook(int timeout_ms) noexcept;
  // Makes the next pass check the descriptors, because something woke the caller.
  void LookAtDescriptors() { passes_ = 0; }

  // Tells the others that this rank leaves. That ends their epoch if something is still in flight here, which fails.
  void Leave();
  // Closes the connections and frees the libraries' resources. The engine itself may live longer, with a user's handle.
  void Close();

 private:
  void EndAfterException(const char* cause);

  // Reads the log, or handles a message of the coordinator, and acts on the events. Returns whether the log had any.
  bool Negotiate(const Bytes* message);
  void Handle(const Negotiation::Event& event);
  void EndWaiting(Ticket ticket, Status status);
  void StartBatch(const Negotiation::Event& event);
  bool FinishWithoutTask(const OperationPtr& operation, const Negotiation::Item& item);
  void UseFullPool(const Signature& signature);
  void OnJoinEnd(const Negotiation::Event& event);
  bool EndJoin();
  void OnLeft(int rank);

  // Each drives one part and acts on its results.
  void HandleEvents();
  bool EnterDeferred();
  bool SendOutgoing();
  void CheckPeriodically();
  void FailWaiting();
  void CheckFailures(TimePoint now);
  void AnnounceLeaving();

  // The end of operations.
  void FinishAll(std::vector<WorkQueue::Ended>* ended);
  void FailAll(const Status& reason, bool at_end);
  void FinishWithheld();

  // The end of the epoch.
  void Abort(const EpochEnd& end);
  void BroadcastEnd(const EpochEnd& end);
  void EndIfUnconfirmed(TimePoint now);
  bool CheckAbortWord();
  void EndEpoch(const EpochEnd& end);

  World* const world_;
  Operations* const operations_;
  const int64_t fusion_threshold_bytes_;

  ControlPlane control_;
  WorkQueue work_;
  EarlySums early_;
  FailureMonitor failures_;
  StallInspector stalls_;

  // Operations of an epoch that has ended, until no transfer touches their memory (invariant 3).
  std::vector<WorkQueue::Ended> withheld_;

  // Operations that this pass has taken from their owners (invariant 4).
  std::vector<ReadyOperation> batch_;
  std::vector<OperationPtr> failing_;
  std::vector<WorkQueue::Ended> ended_;

  unsigned passes_ = 0;
  bool has_looked_ = false;  // since the last pass
  TimePoint last_check_ = Now();
  TimePoint last_links_ = Now();
};

}  // namespace farandole
