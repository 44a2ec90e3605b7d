// One NCCL communicator: the ranks of a process set, each with one device.
//
// It is non-blocking: a call may only have begun when it returns, and before the next one Poll must have said that it
// is ready.
//
//   Begin -> Poll ... ready -> Call -> Poll ... ready -> Call -> ... -> Finish -> Poll ... ready -> destroyed
//                             Abort, at any time
//
// The driver alone calls.
#pragma once

#include "backends/nccl/caller.h"
#include "backends/nccl/library.h"
#include "device/device.h"

namespace farandole {

class Communicator {
 public:
  Communicator(const NcclLibrary& nccl, Device* device) : nccl_(nccl), device_(device), caller_(nccl) {}
  ~Communicator() { Abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Status Begin(const NcclUniqueId& id, int position, int size);
  // *ready: what was called has been done, as far as the host is concerned. An error of earlier work of the device, or
  // of the connections to the others, comes up here, and then for good; `code` is NCCL's.
  Status Poll(bool* ready, int* code);
  // An orderly end, for which the members wait for one another. Once it is ready, nothing is left.
  Status Finish();
  // Frees it and ends what the device does for it, without the others.
  void Abort();

  Device* device() const { return device_; }
  NcclComm handle() const { return handle_; }

  // Makes calls of this communicator, each by Call.
  Status Make(const std::function<Status()>& calls) { return caller_.Make(device_, calls); }

  // REQUIRES: within Make.
  template <typename Signature, typename... Arguments>
  Status Call(const NcclFunction<Signature>& function, Arguments... arguments) const {
    const int code = function.pointer(arguments...);
    if (code == kNcclSuccess || code == kNcclInProgress) return Status::Ok();
    return nccl_.Failed(function.name, code, handle_, device_->name());
  }

 private:
  const NcclLibrary& nccl_;
  Device* const device_;
  Caller caller_;
  NcclComm handle_ = nullptr;
  bool is_finishing_ = false;
};

}  // namespace farandole
