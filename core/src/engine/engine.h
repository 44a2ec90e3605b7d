// The engine of one rank: takes requests, negotiates them with the other ranks, performs them, and reports their end.
//
//   any thread   Submit ------> Operations (negotiation, in flight) <---- ProgressLoop
//                Wait --------> Driver ---> drives the progress loop
//
// In a world of one rank there is no driver and no thread: everything completes in Submit.
//
// Thread safety: any thread, except for Start and Shutdown.
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "common/config.h"
#include "engine/driver.h"
#include "engine/operations.h"
#include "execution/single_rank.h"
#include "operation/operation.h"
#include "p2p/messenger.h"
#include "world/world.h"

namespace farandole {

class Engine {
 public:
  // Connects the ranks; fills in spec.plan itself. Blocks until all have connected or the start timeout is over.
  static Status Start(WorldSpec spec, Settings settings, std::unique_ptr<Engine>* engine);
  // Starts an engine in an existing world (ranks as threads in tests).
  static Status Start(std::unique_ptr<World> world, const Settings& settings, std::unique_ptr<Engine>* engine,
                      std::unique_ptr<FlightRecorder> recorder = nullptr);
  static SegmentPlan PlanFor(int world_size);

  ~Engine() { Shutdown(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Submit, RunOrBegin and Refuse throw nothing. An exception (usually bad_alloc) before this rank arrives at an
  // operation fails that call on all ranks; a later one ends the epoch on all ranks.

  // Begins the operation. Never waits for other ranks. will_wait: the caller calls Wait for it next, so no other thread
  // is woken to drive. *operation is set before `done` can be called; leave it alone until Submit has returned.
  Status Submit(const RequestView& request, OperationPtr* operation, bool will_wait = false);

  // For a blocking call, whose request need not be copied where the other ranks are about to arrive: polls for a
  // microsecond or two only, since the caller may hold a lock, such as the GIL. Returns false, and does nothing, if the
  // call needs Submit. Otherwise the call has succeeded if *operation is null; else wait for *operation.
  bool RunOrBegin(const RequestView& request, OperationPtr* operation);

  // Fails, on all ranks, a call that this rank cannot make; the error names this rank, the site and the reason. It is
  // the call of that name, or the set's next unnamed one. Never waits. Submit calls this itself.
  void Refuse(int set, std::string_view name, std::string_view site, const std::string& why) noexcept;

  // Promises that this rank makes no such calls until Allow, since it waits at the meeting. If a rank that has not
  // entered the meeting waits for this one in such a call, the epoch ends with kMismatch on all ranks. Returns the
  // number for Allow.
  int64_t Exclude(ExcludedCalls calls);
  void Allow(int64_t number);

  // Leaves the world: tells the others, fails what is in flight, and closes every connection. Afterwards Submit fails
  // and Wait returns at once. Other threads may be inside any call; what has not completed by then fails.
  void Shutdown();

  // Returns whether the operation is done. Completes a small one at which all ranks have arrived. Does not wait.
  bool Poll(const OperationPtr& operation);

  static constexpr int64_t kForeverMs = int64_t{1} << 40;
  // Drives, or sleeps while another thread drives, until the operation is done or the time is up. Returns whether it is
  // done.
  bool Wait(const OperationPtr& operation, int64_t limit_ms);

  // Limits every wait for operations of the set whose caller takes WaitLimitOf, until the world ends; 0: no longer.
  void LimitWaits(int process_set, int64_t limit_ms);
  int64_t WaitLimitOf(int process_set) const;  // 0: none
  // From now on a wait may have this limit, so the ranks that are missing must be known by then.
  void ExpectLimit(int64_t limit_ms);
  // The error of a caller that waits no longer, with the names of the missing ranks. The operation stays in flight.
  Status Overdue(const OperationPtr& operation, int64_t waited_ms);

  // ---- single messages (p2p/messenger.h)

  // Begins a transfer within a process set, its context. Never waits. Throws nothing. An error: nothing has begun.
  Status Begin(const TransferPtr& transfer) noexcept;
  // Both return whether it is done. Call one of them also for a transfer that has ended meanwhile.
  bool Poll(const TransferPtr& transfer);
  bool Wait(const TransferPtr& transfer, int64_t limit_ms);
  // Ends a transfer that is not done, since the caller has waited long enough. Its memory is not touched any more.
  void GiveUp(const TransferPtr& transfer);

  // Declares that its thread does nothing but wait for the operation while this lives.
  class BlockedScope {
   public:
    // If there is no memory, a deadlock may be found only by its deadline.
    BlockedScope(Engine* engine, const OperationPtr& operation) : engine_(engine) {
      try {
        engine_->operations_->blocked.Add(operation);
      } catch (const std::bad_alloc&) {
      }
    }
    ~BlockedScope() { engine_->operations_->blocked.Remove(); }
    BlockedScope(const BlockedScope&) = delete;
    BlockedScope& operator=(const BlockedScope&) = delete;

   private:
    Engine* const engine_;
  };
  // The operations of all threads in a BlockedScope, and Operations::entered at that time. nullopt if another thread
  // may submit through the C interface, or if one of the operations can end without any rank's program.
  struct BlockedSnapshot {
    uint64_t entered = 0;
    BlockedThreads::Threads threads;
  };
  std::optional<BlockedSnapshot> SnapshotBlocked() const;
  DiagnosisChannel* diagnosis() { return operations_ ? &operations_->diagnosis : nullptr; }  // null in a world of one
  // See Operations::has_native_callers.
  void NoteNativeCaller() {
    if (operations_) operations_->has_native_callers.store(true, std::memory_order_relaxed);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  World* world() const { return world_.get(); }  // null in a world of one
  // True in a world of several ranks. Tensors on a device need a driver, which copies them in the background.
  bool reads_devices() const { return operations_ != nullptr; }
  // True when a backend in the user's list takes tensors as they lie on a device. False in a world of one.
  bool takes_device_memory() const {
    return operations_ != nullptr && BackendTable::AnyTakesDeviceMemory(backend_list_);
  }
  // Returns the rank whose end made an operation of this rank fail or be refused, with the reason; -1 if there is none.
  // A rank that leaves when it is no longer needed does not count.
  int LostRank(std::string* reason) const;
  // If a wait has ended the epoch, returns the missing rank, perhaps this one; else -1. *waits_too: it is a deadlock,
  // so that rank also waits and fails for the same reason.
  int LateRank(bool* waits_too) const;
  uint64_t bytes_submitted() const { return operations_ ? operations_->bytes_submitted.load() : 0; }
  uint64_t messages_sent() const { return operations_ ? operations_->messages_sent.load() : 0; }

 private:
  Engine(const Settings& settings, bool world_of_one) : devices_(settings.cuda_driver), single_rank_(world_of_one) {}

  Status AfterException(const char* cause, const RequestView& request, const OperationPtr& operation) noexcept;
  void EndEpoch(const char* cause);
  void RefuseOrThrow(int set, std::string_view name, std::string_view site, const std::string& why);
  Status Prepare(Request* request, ProcessSetPtr set, OperationPtr* operation);
  Status Mark(Request* request) const;
  Status FindDevice(Operation* operation);
  ProcessSetPtr FindSet(int id);
  Status FindMembers(Transfer* transfer);
  void NoteEnd(const Transfer& transfer);

  int rank_ = 0;
  int size_ = 1;
  BackendList backend_list_;
  Devices devices_;
  ResultPools results_;
  SingleRank single_rank_;
  std::unique_ptr<World> world_;
  ProcessSetPtr everybody_;
  std::unique_ptr<Operations> operations_;
  std::unique_ptr<Driver> driver_;  // null in a world of one
  std::unique_ptr<Messenger> messenger_;
};

}  // namespace farandole
