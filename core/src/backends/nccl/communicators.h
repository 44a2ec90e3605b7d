// NCCL's communicators: which ranks are in one, how they connect, which thread makes the calls, and how a communicator
// ends.
//
//   Communicator      one of NCCL's: the ranks of a process set, or those of one host, each with one device
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
//   Begin -> Poll ... ready -> Make -> Poll ... ready -> Make -> ... -> Finish -> Poll ... ready -> destroyed
//                             BeginAbort, at any time -> AwaitCalls -> freed
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

  void Begin(const NcclUniqueId& id, int position, int size);
  // *ready: the calls have been performed, as far as the host is concerned. Reports an error of the calls once; an
  // error of earlier work of the device, or of the connections to the others, is reported by every Poll. `code` is
  // NCCL's.
  Status Poll(bool* ready, int* code);
  // Starts an orderly end, for which the members wait for one another. Once the communicator is ready, it is freed.
  void Finish();
  // Has its thread free the communicator and end its work on the device, without the other ranks, after the calls that
  // were made before. Those and NCCL's abort may never return, so the thread waits for them, and AwaitCalls gives up
  // waiting.
  void BeginAbort();
  // Returns false if not all calls have been made by `end`. The thread still makes them if it goes on.
  bool AwaitCalls(TimePoint end) { return thread_.AwaitIdle(end); }

  Device* device() const { return device_; }
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
    return Called(function.name, [&] { return function.pointer(arguments...); });
  }
  // Calls the function of that name. REQUIRES: within Make.
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
  std::chrono::milliseconds abort{5000};   // for calls and aborts of communicators, which are abandoned afterwards
  std::chrono::milliseconds device{5000};  // for a device to end its work
};

//   Start -> Poll: NCCL's id, made by a thread -> the members' addresses (the id, the device), by the host backend
//         -> a communicator that opens
//
// A communicator has all ranks of a set, or, where NCCL has no network between hosts, those of this host.
class Communicators {
 public:
  Communicators(const World* world, const NcclLibrary& nccl, Backend* host_backend, bool has_network,
                const NcclPatience& patience)
      : world_(world), nccl_(nccl), has_network_(has_network), patience_(patience), allgather_(host_backend) {}

  Communicator* Find(int set_id) const;  // null where there is none yet
  // True when the set has one communicator for each host.
  bool AreOfHosts(const ProcessSet& set) const { return !has_network_ && set.layout.group_count() > 1; }

  // `set` stays valid until the communicator is made, or Abort.
  void Start(const ProcessSet& set, Device* device);
  // Sets *made to the communicator once its ranks know each other's addresses; it is not ready yet.
  Status Poll(bool* moved, Communicator** made);
  std::vector<int> WaitingOn() const { return is_gathering_ ? allgather_.WaitingOn() : std::vector<int>(); }
  // Returns the name of NCCL's call that has not returned, before there is a communicator; null for none.
  const char* CallUnderWay() const { return id_thread_.IsIdle() ? nullptr : nccl_.get_unique_id.name; }

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
  // The first message that the members of a set send each other. The id is for a communicator
  // of which this rank is the first.
  struct PeerAddress {
    NcclUniqueId id;
    DeviceIdentity device{};
  };

  // Returns the positions of the ranks that are in a communicator with this one.
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

  // The communicator that is being made.
  const ProcessSet* set_ = nullptr;
  Device* device_ = nullptr;
  std::shared_ptr<PeerAddress> mine_;  // the thread's during the call
  CallThread id_thread_;
  // The communicator that was made last.
  int made_for_ = -1;                    // the set
  std::vector<int> ranks_;               // of the world
  std::vector<DeviceIdentity> devices_;  // theirs
};

// Makes what the table's row makes (nccl.cc), with a patience that tests shorten. It opens nothing, so it never fails;
// Backend::Open says whether there is a library.
std::unique_ptr<Backend> MakeNcclBackend(World* world, const Settings& settings, Backend* host_backend,
                                         const NcclPatience& patience = NcclPatience());

}  // namespace farandole
