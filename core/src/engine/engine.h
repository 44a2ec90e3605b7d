// The engine of one rank: takes requests, negotiates them with the other ranks, performs them, and says when they are
// done.
//
//   any thread   Submit ------> Operations (negotiation, in flight) <---- ProgressLoop
//                Wait --------> Driver ---> drives the progress loop
//
// A world of one rank has no driver and no thread: everything completes in Submit.
#pragma once

#include <memory>
#include <string>

#include "common/config.h"
#include "engine/driver.h"
#include "engine/operation.h"
#include "engine/operations.h"
#include "engine/solo.h"
#include "world/world.h"

namespace farandole {

class Engine {
 public:
  // Connects the ranks; `spec` needs no plan, which the engine fills in. Blocks until all are there or the start
  // timeout.
  static Status Start(WorldSpec spec, Settings settings, std::unique_ptr<Engine>* engine);
  // An engine over a world that exists already (ranks as threads in tests).
  static Status Start(std::unique_ptr<World> world, const Settings& settings, std::unique_ptr<Engine>* engine,
                      std::unique_ptr<FlightRecorder> recorder = nullptr);
  static SegmentPlan PlanFor(int world_size);

  ~Engine() { Shutdown(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Begins the operation. Never waits for other ranks. will_wait: the caller calls Wait for it next, so no other thread
  // is woken to drive. *operation does not change before Submit has returned, even when `done` is called earlier.
  Status Submit(Request request, OperationPtr* operation, bool will_wait = false);
  Status Submit(const RequestView& request, OperationPtr* operation, bool will_wait = false) {
    return Submit(Request(request), operation, will_wait);
  }

  // Submit and Wait in one, for calls that need no Operation. Returns false, and does nothing, when the call needs one;
  // else *status says how it ended.
  bool Run(const RequestView& request, Status* status);
  // Like Run, but looks for a microsecond or two only, for callers that hold a lock of their own: where the others have
  // not come by then, *operation is what to wait for; else it stays null, and the call has succeeded.
  bool RunOrBegin(const RequestView& request, OperationPtr* operation);

  // Warns ranks that wait for this one in a change of process sets: this rank has refused the change.
  void TellOfRefusal(const std::string& why, const std::string& site);

  // Leaves the world: tells the others, completes what is in flight with an error, closes every connection. Afterwards
  // Submit fails and Wait returns at once. REQUIRES: no thread is inside Submit.
  void Shutdown();

  // Looks once, without waiting, and completes a small operation that all ranks have arrived at. Returns whether it is
  // done.
  bool Poll(const OperationPtr& operation);

  static constexpr int64_t kForGoodMs = int64_t{1} << 40;
  // Drives, or sleeps while another thread drives, until the operation is done or the time is up. Returns whether it is
  // done.
  bool Wait(const OperationPtr& operation, int64_t limit_ms);

  // While an object lives, its thread does nothing but wait for the operation.
  class OnlyWaiting {
   public:
    OnlyWaiting(Engine* engine, const OperationPtr& operation) : engine_(engine) {
      engine_->operations_->blocked.Add(operation);
    }
    ~OnlyWaiting() { engine_->operations_->blocked.Remove(); }
    OnlyWaiting(const OnlyWaiting&) = delete;
    OnlyWaiting& operator=(const OnlyWaiting&) = delete;

   private:
    Engine* const engine_;
  };
  // Notes that there are threads that submit and are not the program's own, see Operations.
  void NoteNativeCaller() {
    if (operations_) operations_->has_native_callers.store(true, std::memory_order_relaxed);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  World* world() const { return world_.get(); }  // null in a world of one
  // True in a world of several ranks: only there the core takes tensors on a device, since a driver copies beside the
  // caller.
  bool reads_devices() const { return operations_ != nullptr; }
  // True when a backend in the user's list takes tensors as they lie on a device. False in a world of one.
  bool takes_device_memory() const {
    return operations_ != nullptr && BackendTable::AnyTakesDeviceMemory(backend_list_);
  }
  // Returns the rank whose end made an operation of this rank fail, or be refused, with the reason; -1 if none did. A
  // rank that is no longer needed may leave.
  int LostRank(std::string* reason) const;
  uint64_t bytes_submitted() const { return operations_ ? operations_->bytes_submitted.load() : 0; }
  uint64_t messages_sent() const { return operations_ ? operations_->messages_sent.load() : 0; }

 private:
  Engine(const Settings& settings, bool world_of_one) : devices_(settings.cuda_driver), solo_(world_of_one) {}

  Status Check(Request* request, const ProcessSet& set) const;
  Status Mark(Request* request) const;
  Status FindDevice(Operation* operation);
  ProcessSetPtr FindSet(int id);
  Status Begin(const OperationPtr& operation, bool will_wait);
  bool TryRun(const RequestView& request, int pauses, int yields, OperationPtr* operation);
  bool RunSmall(SmallCall* call, int pauses, int yields);
  Status SubmitJoin(const OperationPtr& operation);

  template <typename Look>
  bool LookUntil(Look look, int pauses, int yields);
  bool AwaitSmall(const OperationPtr& operation);

  int rank_ = 0;
  int size_ = 1;
  BackendList backend_list_;
  Devices devices_;
  ResultPools results_;
  Solo solo_;
  std::unique_ptr<World> world_;
  ProcessSetPtr everybody_;
  std::unique_ptr<Operations> operations_;
  std::unique_ptr<Driver> driver_;  // null in a world of one
};

}  // namespace farandole
