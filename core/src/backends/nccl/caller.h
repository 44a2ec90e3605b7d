// Who makes the calls of one communicator: a thread of its own, or, from NCCL 2.27 on, whoever drives.
//
// Before, NCCL keeps what a call has only begun in variables of the thread that made it, until it is complete. That
// thread must live on, begin nothing for another communicator meanwhile, and be the one that aborts. Who drives
// changes, may end, and drives all communicators.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "backends/nccl/library.h"
#include "device/device.h"

namespace farandole {

class Caller {
 public:
  explicit Caller(const NcclLibrary& nccl);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Returns when the calls have been made, with the device current, and what they say. The driver alone calls.
  Status Make(Device* device, const std::function<Status()>& calls);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<Status()>* calls_ = nullptr;  // guarded by it, as those below; null: they have been made
  Device* device_ = nullptr;
  Status said_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace farandole
