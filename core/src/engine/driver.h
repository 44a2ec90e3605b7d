// The driver decides which thread drives the progress loop; the others sleep meanwhile.
//
//   a caller in Wait   takes the progress lock and drives, or sleeps while another thread drives
//   the loop thread    sleeps until the doorbell rings; drives while nobody waits, and parks while a caller drives
//
// The engine owns it. Start and Leave once; Wait and NotifyWaiters from any thread.
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
  Driver(World* world, Operations* operations, const Settings& settings, const BackendList& backend_list);
  // Opens the backends' libraries and begins to drive. On an error it has told the other ranks.
  Status Start();
  // Leaves the world, and ends driving. No-op if Start failed.
  void Leave();

  // How long a waiting caller polls before it sleeps. With more ranks than cores, a caller that pauses keeps the rank
  // for which it waits from running, so it yields at once: for 128 KB four ranks on two cores took 1 to 20 % less, for
  // 256 KB from 17 % less to 7 % more. (Pausing for the last one alone won 5 % at 4 bytes, and lost as much with three
  // ranks.) A small call pauses under the lock of Operations, so others may wait as long for that.
  static constexpr int kCallerPauses = 20, kYields = 50;

  // Drives, or sleeps while another thread drives, until the operation is done or the time is up. Returns whether it is
  // done.
  bool Wait(const Operation& operation, int64_t limit_ms);
  void NotifyWaiters() { progress_lock_.NotifyWaiters(); }

 private:
  void DriveUntil(const Operation& operation, TimePoint limit);
  void ReleaseProgressLock();
  void Run();
  void DriveWhileBusy();
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
