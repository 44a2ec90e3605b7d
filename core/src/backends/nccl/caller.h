// Who makes the calls of one communicator: a thread of its own, or, from NCCL 2.27 on, whoever drives.
//
// Before, NCCL keeps what a call has only begun in variables of the thread that made it, until it is complete. That
// thread must live on, begin nothing for another communicator meanwhile, and be the one that aborts. Who drives
// changes, may end, and drives all communicators.
//
// A call that is to begin something may block all the same. The driver hands calls to the thread and asks later, so it
// goes on, and what stands still ends by its deadline.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "backends/nccl/library.h"
#include "device/device.h"

namespace farandole {

class Caller {
 public:
  using Calls = std::function<Status()>;

  explicit Caller(const NcclLibrary& nccl);
  // REQUIRES: all calls have been made.
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Has the calls made, with the device current, after those before. With a thread it returns at once, and TakeResult
  // gives what they say; else it returns that. `calls` keep what they use: they may outlast the work.
  Status Make(Device* device, Calls calls);
  // Whether all calls have been made; *said is then the first error of the thread's since it was last asked.
  bool TakeResult(Status* said);
  bool IsBusy() const;
  // Until all calls have been made, which may be never: not for the driver.
  void Await();

 private:
  void Loop();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Calls> calls_;  // guarded by it, as those below; the first are being made
  Status said_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace farandole
