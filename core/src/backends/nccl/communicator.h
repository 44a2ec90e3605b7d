// One NCCL communicator: the ranks of a process set, each with one device.
//
// It is non-blocking: a call may only have begun when it returns, and before the next one Poll must have said that it
// is ready.
//
//   Begin -> Poll ... ready -> Make -> Poll ... ready -> Make -> ... -> Finish -> Poll ... ready -> destroyed
//                             Abort, at any time
//
// The driver alone calls, but for Abort.
#pragma once

#include <atomic>

#include "backends/nccl/caller.h"
#include "backends/nccl/library.h"
#include "device/device.h"

namespace farandole {

class Communicator {
 public:
  Communicator(const NcclLibrary& nccl, Device* device) : nccl_(nccl), device_(device), caller_(nccl) {}
  // REQUIRES: destroyed, or aborted.
  ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Status Begin(const NcclUniqueId& id, int position, int size);
  // *ready: what was called has been done, as far as the host is concerned. An error of the calls comes up once; one
  // of earlier work of the device, or of the connections to the others, comes up for good. `code` is NCCL's.
  Status Poll(bool* ready, int* code);
  // An orderly end, for which the members wait for one another. Once it is ready, nothing is left.
  Status Finish();
  // Frees it and ends what the device does for it, without the others, after the calls that were made before. It waits
  // for them and for NCCL, perhaps for ever, so a thread calls it that may be left alone.
  void Abort();

  Device* device() const { return device_; }
  // REQUIRES: it is ready.
  NcclComm handle() const { return handle_; }
  // Calls have been handed over that have not all been made.
  bool IsBusy() const { return caller_.IsBusy(); }
  // The call of NCCL that has not returned; null: none. Any thread.
  const char* CallUnderWay() const { return call_.load(); }

  // Has calls of this communicator made, each by Call. They keep what they use: a call that does not return outlasts
  // the work.
  Status Make(Caller::Calls calls) { return caller_.Make(device_, std::move(calls)); }

  // REQUIRES: within Make.
  template <typename Signature, typename... Arguments>
  Status Call(const NcclFunction<Signature>& function, Arguments... arguments) {
    return Called(function.name, [&] { return function.pointer(arguments...); });
  }
  // Of the function of that name. REQUIRES: within Make.
  template <typename Function>
  Status Called(const char* name, const Function& function) {
    call_ = name;
    const int code = function();
    call_ = nullptr;
    if (code == kNcclSuccess || code == kNcclInProgress) return Status::Ok();
    return nccl_.Failed(name, code, handle_, device_->name());
  }

 private:
  const NcclLibrary& nccl_;
  Device* const device_;
  NcclComm handle_ = nullptr;  // changed in calls only
  bool is_finishing_ = false;
  std::atomic<const char*> call_{nullptr};
  Caller caller_;
};

}  // namespace farandole
