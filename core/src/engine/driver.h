// Decides which thread drives the progress loop.
//
//   a caller in Wait   takes the ProgressLock and drives, or sleeps while another thread drives
//   the loop thread    sleeps until the doorbell rings; drives while nobody waits, and parks while a caller drives
//
// Thread safety: any thread may call Wait; call Start and Leave once.
//
// Invariant: a thread arms the doorbell before it releases the ProgressLock or sleeps, and looks for work once more
// afterwards. So an event is seen either by that look or by the thread that the doorbell wakes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/config.h"
#include "engine/operations.h"
#include "engine/progress.h"
#include "world/world.h"

namespace farandole {

class Driver {
 public:
  Driver(Operations* operations, const Settings& settings, const BackendList& backend_list);
  // Opens the backends' libraries and starts the loop thread. On an error, the other ranks have been told.
  Status Start();
  // Leaves the world; no thread drives afterwards. No-op if Start failed.
  void Leave();

  // Drives, or sleeps while another thread drives, until the operation is done or the time is up. Returns whether it is
  // done.
  bool Wait(const OperationPtr& operation, int64_t limit_ms);

 private:
  // Polls for a small operation, which needs no driver, for as long as a caller polls. Does not poll while others are
  // in flight, which may need one. Returns whether it is done.
  bool BecomesDone(const OperationPtr& operation) const;
  // A caller drives while this lives. REQUIRES: it has taken the ProgressLock.
  class DriveScope {
   public:
    explicit DriveScope(Driver* driver) : driver_(driver) { Disarm(driver_->world_->node->doorbell()); }
    ~DriveScope() { driver_->ReleaseProgressLock(); }
    DriveScope(const DriveScope&) = delete;
    DriveScope& operator=(const DriveScope&) = delete;

   private:
    Driver* const driver_;
  };

  void ReleaseProgressLock();
  void Run();
  void DriveWhileBusy();
  void PrepareToSleep();
  void Park();

  World* const world_;
  Operations* const operations_;
  ProgressLock progress_lock_;
  ProgressLoop progress_;

  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> parked_{false};
  std::mutex park_mutex_;
  std::condition_variable unpark_;
};

}  // namespace farandole
