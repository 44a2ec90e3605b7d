// NCCL's communicators: who is in one, how its ranks meet, who makes its calls, and its end.
//
//   Communicator      one of NCCL's: the ranks of a process set, or those of one host, each with one device
//   Communicators     those of the process sets, made in the order of the log, and those that are leaving
//
// Only the holder of the ProgressLock uses them, but for what a communicator's own thread does.
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

// It is non-blocking: a call may only have begun when it returns, and before the next one Poll must have said that it
// is ready.
//
//   Begin -> Poll ... ready -> Make -> Poll ... ready -> Make -> ... -> Finish -> Poll ... ready -> destroyed
//                             BeginAbort, at any time -> AwaitCalls -> nothing is left
//
// A call that is to begin something may block all the same: the first one opens libraries and looks for a network, a
// destroy waits for the device, any waits for a lock of CUDA's driver, and settings of the user's make all of them
// block. So each communicator has a thread of its own, which makes its calls. Where a call does not come back, the
// operation ends by its deadline, and the thread is left alone.
//
// Before 2.27 there is a second reason. NCCL keeps what a call has only begun in variables of the thread that made it,
// until it is complete. That thread must live on, begin nothing for another communicator meanwhile, and be the one that
// aborts. The holder of the ProgressLock changes, may end, and drives all communicators.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const NcclLibrary& nccl, Device* device);
  // REQUIRES: destroyed, or aborted.
  ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void Begin(const NcclUniqueId& id, int position, int size);
  // *ready: what was called has been done, as far as the host is concerned. An error of the calls comes up once; one
  // of earlier work of the device, or of the connections to the others, comes up for good. `code` is NCCL's.
  Status Poll(bool* ready, int* code);
  // An orderly end, for which the members wait for one another. Once it is ready, nothing is left.
  void Finish();
  // Has its thread free it and end what the device does for it, without the other ranks, after the calls that were made
  // before. Those and NCCL's abort may take for ever, so it is the thread that waits, and AwaitCalls that gives up.
  void BeginAbort();
  // False where not all calls have been made by `end`. Then the thread, if it goes on, still makes them.
  bool AwaitCalls(TimePoint end) { return thread_.AwaitIdle(end); }

  Device* device() const { return device_; }
  // REQUIRES: it is ready.
  NcclComm handle() const { return handle_; }
  // Calls have been handed over that have not all been made.
  bool IsBusy() const { return !thread_.IsIdle(); }
  // The call of NCCL that has not returned; null: none. Any thread.
  const char* CallUnderWay() const { return call_.load(); }

  // Has its thread make calls, each by Call, with its device current; an error is Poll's to say. They keep what they
  // use: a call that does not return outlasts the task.
  void Make(CallThread::Call calls);

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
  CallThread thread_;
};

// How long the ends may take.
struct NcclPatience {
  std::chrono::milliseconds order{2000};   // for an orderly end of all communicators
  std::chrono::milliseconds abort{5000};   // for calls and aborts of communicators, then they are left alone
  std::chrono::milliseconds device{5000};  // for a device to let go of what it was told
};

//   Start -> Poll: NCCL's id, made by a thread -> the members' addresses (the id, the device), carried by ours
//         -> a communicator that opens
//
// A communicator has all ranks of a set, or, where NCCL has no network between hosts, those of this host.
class Communicators {
 public:
  Communicators(const World* world, const NcclLibrary& nccl, Backend* host_backend, bool has_network,
                const NcclPatience& patience)
      : world_(world), nccl_(nccl), has_network_(has_network), patience_(patience), allgather_(host_backend) {}

  Communicator* Find(int set_id) const;  // null where there is none yet
  // Whether the set has one for each host.
  bool AreOfHosts(const ProcessSet& set) const { return !has_network_ && set.layout.group_count() > 1; }

  // `set` stays valid until the communicator is there or Abort.
  void Start(const ProcessSet& set, Device* device);
  // *made becomes the communicator once its ranks know each other's addresses; it is not ready yet.
  Status Poll(bool* moved, Communicator** made);
  std::vector<int> WaitingOn() const { return is_gathering_ ? allgather_.WaitingOn() : std::vector<int>(); }
  // The call of NCCL, before there is a communicator, that has not returned; null: none.
  const char* CallUnderWay() const { return id_thread_.IsIdle() ? nullptr : nccl_.get_unique_id.name; }

  // What to look at when the ranks of this set's communicator are not connected.
  std::string Advice(const ProcessSet& set) const;
  // An error of connecting the ranks of this set's communicator, with what may be behind it.
  Status Explained(const Status& status, const ProcessSet& set) const;

  void Forget(int set_id);
  // Moves the orderly ends on; whether one of them is over.
  bool PollLeaving();
  // All end, in order where the others go on, for which this waits a while. Returns what Abort returns.
  bool Close(bool in_order);
  // All end at once, `working` first, null for none, which has calls on the device. False where calls of NCCL have not
  // come back in time: they are left alone, after a warning, and may still use what they were given.
  bool Abort(Communicator* working);

 private:
  // What the members of a set tell each other first. The id is for a communicator of which this rank is the first.
  struct PeerAddress {
    NcclUniqueId id;
    DeviceIdentity device{};
  };

  // The positions of those who are in a communicator with this rank.
  std::vector<int> PositionsOf(const ProcessSet& set) const;
  void AskForId();
  void Connect();
  void Finish(std::shared_ptr<Communicator> communicator);
  void AbortThose(const std::vector<std::shared_ptr<Communicator>>& those, Communicator* working = nullptr);
  bool AbortAll(Communicator* working);

  const World* const world_;
  const NcclLibrary& nccl_;
  const bool has_network_;
  const NcclPatience patience_;
  OutOfBandAllgather allgather_;
  bool is_gathering_ = false;
  std::map<int, std::shared_ptr<Communicator>> communicators_;  // by set
  std::vector<std::shared_ptr<Communicator>> leaving_;
  bool has_left_some_alone_ = false;

  // Of the communicator that is made now.
  const ProcessSet* set_ = nullptr;
  Device* device_ = nullptr;
  std::shared_ptr<PeerAddress> mine_;  // the thread's while it is at the call
  CallThread id_thread_;
  // Of the one made last.
  int made_for_ = -1;                    // the set
  std::vector<int> ranks_;               // of the world
  std::vector<DeviceIdentity> devices_;  // theirs
};

}  // namespace farandole
