// NCCL's communicators: which ranks are in one, how they connect, which thread makes the calls, and how a communicator
// ends.
//
//   Communicator      one of NCCL's: the ranks of a process set, each with one device
//   Communicators     those of the process sets, made in the order of the log, and those that are ending
//
// Only the holder of the ProgressLock uses them, except for the work of a communicator's own thread.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/blocking.h"
#include "backends/nccl/library.h"
#include "device/device.h"
#include "world/world.h"

namespace farandole {

// How long a thread sleeps between two looks at NCCL.
inline constexpr std::chrono::microseconds kPollInterval{50};

// A communicator is non-blocking: a call may return when it has only begun, and the next one must wait until Poll says
// that the communicator is ready.
//
//   MakeId, on the first rank -> Poll ... ready -> Begin -> Poll ... ready -> Make -> Poll ... ready -> Make -> ...
//                                       -> Finish -> Poll ... ready -> destroyed
//                                       BeginAbort, at any time -> AwaitCalls -> freed
//
// A call may block all the same: the first one opens libraries and looks for a network, a destroy waits for the device,
// any call waits for a lock of CUDA's driver, and the user's settings can make all of them block. So each communicator
// has a thread of its own, which makes its calls. If a call does not return, the operation ends by its deadline, and
// the thread is abandoned.
//
// Before NCCL 2.27 there is a second reason. NCCL keeps what a call has only begun in variables of the calling thread,
// until it is complete. That thread must live on, must not begin anything for another communicator meanwhile, and must
// be the one that aborts. The holder of the ProgressLock cannot be it: it changes, may end, and drives all
// communicators.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const NcclLibrary& nccl, Device* device);
  // REQUIRES: destroyed, or aborted.
  ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Makes the id by which the members meet. The first of them calls it.
  void MakeId();
  // Returns what the other members need from this rank. REQUIRES: it is ready.
  std::string address() const { return {reinterpret_cast<const char*>(&mine_), sizeof(mine_)}; }
  // Connects the members. addresses: theirs, by position.
  void Begin(const std::vector<std::string>& addresses, int position);
  // *ready: the calls have been performed, as far as the host is concerned. Reports an error of the calls once; an
  // error of earlier work of the device, or of the connections to the others, is reported by every Poll.
  Status Poll(bool* ready);
  // True when that error is one of a connection.
  bool LostConnection() const { return code_ == kNcclSystemError || code_ == kNcclRemoteError; }
  // Starts an orderly end, for which the members wait for one another. Once the communicator is ready, it is freed.
  void Finish();
  // Has its thread free the communicator and end its work on the device, without the other ranks, after the calls that
  // were made before. Those and NCCL's abort may never return, so the thread waits for them, and AwaitCalls gives up
  // waiting.
  void BeginAbort();
  // Returns false if not all calls have been made by `end`. The thread still makes them if it goes on.
  bool AwaitCalls(TimePoint end) { return thread_.AwaitIdle(end); }

  Device* device() const { return device_; }
  // Of the members, by position, once it has begun.
  const std::vector<DeviceIdentity>& devices() const { return devices_; }
  // REQUIRES: it is ready.
  NcclComm handle() const { return handle_; }
  // True while calls have been submitted that have not all been made.
  bool IsBusy() const { return !thread_.IsIdle(); }
  // Returns the name of NCCL's call that has not returned, null for none. Any thread.
  const char* CallUnderWay() const { return call_.load(); }

  // Has its thread make calls, each by Call, with its device current; Poll reports an error. The calls own what they
  // use, since a call that does not return outlasts the task.
  void Make(CallThread::Call calls);

  // REQUIRES: within Make.
  template <typename Signature, typename... Arguments>
  Status Call(const NcclFunction<Signature>& function, Arguments... arguments) {
    call_ = function.name;
    const int code = function.pointer(arguments...);
    call_ = nullptr;
    if (code == kNcclSuccess || code == kNcclInProgress) return Status::Ok();
    return nccl_.Failed(function.name, code, handle_, device_->name());
  }

 private:
  struct Address {
    NcclUniqueId id;  // the first member's is the communicator's
    DeviceIdentity device{};
  };

  const NcclLibrary& nccl_;
  Device* const device_;
  Address mine_;
  std::vector<DeviceIdentity> devices_;
  NcclComm handle_ = nullptr;  // changed in calls only
  int code_ = kNcclSuccess;    // NCCL's answer to the last Poll
  bool is_finishing_ = false;
  std::atomic<const char*> call_{nullptr};
  CallThread thread_;
};

//   Open: NCCL's id -> Connect: the members' addresses (the id, the device), by the host backend -> it begins
class Communicators {
 public:
  // patience: for calls and aborts of communicators, which are abandoned afterwards.
  Communicators(const World* world, const NcclLibrary& nccl, Backend* host_backend, std::chrono::milliseconds patience)
      : world_(world), nccl_(nccl), patience_(patience), allgather_(host_backend) {}

  Communicator* Find(int set_id) const;  // null where there is none yet

  // Makes the set's communicator, which is ready once it can tell its address.
  Communicator* Open(const ProcessSet& set, Device* device);
  // Sends the address to the other members. *begun: the communicator has those of all, and begins. REQUIRES: it is
  // ready; `set` stays valid until it begins, or Abort.
  Status Connect(const ProcessSet& set, bool* moved, bool* begun);
  std::vector<int> WaitingOn() const { return is_gathering_ ? allgather_.WaitingOn() : std::vector<int>(); }

  // Returns a sentence that tells the user what to check when the ranks of this set's communicator do not connect.
  std::string Advice(const ProcessSet& set) const;
  // Adds likely causes to an error from connecting the ranks of this set's communicator.
  Status Explained(const Status& status, const ProcessSet& set) const;

  void Forget(int set_id);
  // Moves the orderly ends on. Returns whether one of them is over.
  bool PollLeaving();
  // Ends all communicators; in_order waits a while for the other ranks. Returns what Abort returns.
  bool Close(bool in_order);
  // Ends all communicators at once, first `working` (or null), which has calls on the device. Returns false where calls
  // of NCCL have not returned in time: their threads are abandoned, after a warning, and may still use what they were
  // given.
  bool Abort(Communicator* working);

 private:
  void Finish(std::shared_ptr<Communicator> communicator);
  void AbortThose(const std::vector<std::shared_ptr<Communicator>>& those, Communicator* working = nullptr);

  const World* const world_;
  const NcclLibrary& nccl_;
  const std::chrono::milliseconds patience_;
  OutOfBandAllgather allgather_;
  bool is_gathering_ = false;
  std::map<int, std::shared_ptr<Communicator>> communicators_;  // by set
  std::vector<std::shared_ptr<Communicator>> leaving_;
  bool has_abandoned_calls_ = false;
};

}  // namespace farandole
