// The NCCL backend: collectives of tensors on CUDA devices, without copies to the host.
//
//   addresses (NCCL's id, the device) -> communicator -> NCCL's calls in the backend's own stream -> its event -> done
//
// Where NCCL has no network between hosts, a task that spans several hosts has NCCL's calls before and after an
// exchange over links (relay.h).
//
// Communicators are made in the order of the log (communicators.h). Nothing here blocks, with two exceptions: an abort
// gives NCCL and the device a few seconds each to release the tensors, and allocations wait for CUDA's driver. A call
// of NCCL that does not return keeps a thread of its communicator, not the progress loop (communicators.h). A task is
// done when the device has performed it, so an error until then is that task's.
//
// It owns its communicators and one stream for each device. The devices are the process's (device.h), and so is NCCL's
// library, which a framework may use as well. Only the holder of the ProgressLock uses a backend.
#include <chrono>
#include <map>
#include <thread>

#include "backends/nccl/calls.h"
#include "backends/nccl/communicators.h"
#include "backends/nccl/relay.h"
#include "backends/table.h"
#include "common/log.h"

namespace farandole {
namespace {

// An error of a connection may come from the death of a rank. It is held back for this long, so that the world's
// liveness can find the death and name the rank.
constexpr std::chrono::milliseconds kGrace{500};
// A thread of NCCL's own connects ranks and launches kernels, and does not say when it is done: a launch takes some
// microseconds, a connection a second. For this long the progress loop polls without sleeping.
constexpr std::chrono::milliseconds kLaunchTime{2};

// All ranks get the same answer, since they all know the sizes. In an alltoall a rank does not know what others send to
// each other, so an alltoall is always taken to move something.
bool MovesNothing(const Task& task) {
  if (TakesSplits(task.kind)) return false;
  return (RowsDiffer(task.kind) ? task.ResultBytes() : task.TotalBytes()) == 0;
}

class Nccl final : public Backend {
 public:
  Nccl(World* world, Settings settings, Backend* host_backend, const NcclPatience& patience)
      : world_(world),
        settings_(std::move(settings)),
        host_backend_(host_backend),
        patience_(patience),
        waker_(world->group->event()) {}

  ~Nccl() override {
    if (communicators_ && !communicators_->Close(!world_->group->abort_word().set())) LeaveStreams();
  }

  const char* name() const override { return kNccl.name; }

  Status Open() override {
    FRD_RETURN_IF_ERROR(OpenNccl(settings_, &nccl_));
    const bool has_network = settings_.without_network.count(name()) == 0;
    communicators_ = std::make_unique<Communicators>(world_, *nccl_, host_backend_, has_network, patience_);
    launch_ = std::make_unique<Launch>(*nccl_);
    relay_ = std::make_unique<Relay>(world_, settings_, *nccl_);
    return Status::Ok();
  }

  Status Start(const Task* task) override {
    if (is_aborted_) return Internal("NCCL cannot be used any more, since one of its operations was given up");
    task_ = task;
    state_ = State::kOver;
    if (MovesNothing(*task)) return Status::Ok();
    FRD_RETURN_IF_ERROR(Here(FindStream()));
    communicator_ = communicators_->Find(task->set->id);
    AwaitNccl(communicator_ != nullptr ? State::kOpening : State::kGathering);
    if (communicator_ == nullptr) communicators_->Start(*task->set, stream_->device());
    return Status::Ok();
  }

  Status Poll(bool* moved, bool* done) override {
    *moved |= communicators_->PollLeaving();
    if (failed_.ok()) {
      failed_ = Here(Advance(moved, done));
      const bool may_be_a_death = code_ == kNcclSystemError || code_ == kNcclRemoteError;
      said_from_ = Now() + (may_be_a_death ? kGrace : std::chrono::milliseconds(0));
    }
    return Now() < said_from_ ? Status::Ok() : failed_;
  }

  int LongestSleepMs() const override {
    const bool is_asked = state_ == State::kGathering || state_ == State::kOpening || state_ == State::kLaunching ||
                          state_ == State::kEnding;
    const bool is_called = state_ == State::kCrossing && communicator_->IsBusy();
    if (!is_asked && !is_called) return -1;
    return Now() - asked_ < kLaunchTime ? 0 : 1;
  }

  std::vector<int> WaitingOn() const override {
    if (state_ == State::kGathering) return communicators_->WaitingOn();
    return state_ == State::kCrossing ? relay_->WaitingOn() : std::vector<int>();
  }

  std::string StallReason() const override {
    // From 2.22 on, ranks are connected when they first perform something.
    const bool connects = state_ == State::kOpening || state_ == State::kLaunching;
    const std::string advice = connects ? communicators_->Advice(*task_->set) : " (NCCL_DEBUG=INFO lets it say why)";
    if (const char* const call = CallUnderWay()) {
      return nccl_->name() + ", which has not come back from " + call + " on " + stream_->device()->name() +
             (connects ? " and has not connected the ranks" : "") + advice + ",";
    }
    if (connects) return nccl_->name() + ", which has not connected the ranks" + advice + ",";
    if (state_ == State::kCrossing) return "other hosts, which do not take what this rank sends them,";
    if (state_ != State::kRunning) return "";
    const std::string why = IsOnItsWayBack()
                                ? "another rank of this host may wait for other hosts, or the GPU may be busy"
                                : "the GPU may be busy with something else, or the network that "
                                  "NCCL_DEBUG=INFO names may be gone";
    return nccl_->name() + ", which does not come to an end on " + stream_->device()->name() + " (" + why + "),";
  }

  void Abort() override {
    const State state = state_;
    state_ = State::kOver;
    is_aborted_ = true;
    relay_->Abort();
    const bool is_on_device = state == State::kLaunching || state == State::kRunning;
    Communicator* const working = is_on_device ? communicator_ : nullptr;
    communicator_ = nullptr;
    if (!communicators_->Abort(working)) {
      LeaveStreams();
    } else if (is_on_device) {
      AwaitDevice();
    }
  }

  void Forget(int set_id) override {
    relay_->Forget(set_id);
    communicators_->Forget(set_id);
  }

 private:
  // A task goes through these states from left to right. A relayed task launches and runs twice, with a crossing
  // between.
  enum class State { kGathering, kOpening, kLaunching, kRunning, kCrossing, kEnding, kOver };

  Status Here(Status status) const {
    if (status.ok()) return status;
    return {status.code(), world_->NameOf(world_->rank), ": ", status.message()};
  }

  // True when NCCL performs the task inside the hosts only, and links between them.
  bool IsRelayed() const { return communicators_->AreOfHosts(*task_->set); }
  bool IsOnItsWayBack() const { return IsRelayed() && relay_->is_back(); }

  const char* CallUnderWay() const {
    if (state_ == State::kGathering) return communicators_->CallUnderWay();
    return state_ != State::kOver && communicator_ != nullptr ? communicator_->CallUnderWay() : nullptr;
  }

  // ---- the device

  Status FindStream() {
    Device* device = nullptr;
    if (const Communicator* const known = communicators_->Find(task_->set->id)) device = known->device();
    for (const IoBuffer& buffer : task_->buffers) {
      if (buffer.device == nullptr) continue;
      if (device != nullptr && device != buffer.device) {
        return Invalid("tensors of process set ", task_->set->id, " lie on ", device->name(), " and on ",
                       buffer.device->name(),
                       "; with NCCL a rank has one device for all of a set: choose it once, by local_rank()");
      }
      device = buffer.device;
    }
    if (device == nullptr) device = last_device_;
    if (device == nullptr)
      return Invalid("this rank has joined before it had a tensor on a device, so NCCL does not know which is its own");
    last_device_ = device;
    std::unique_ptr<DeviceStream>& stream = streams_[device];
    stream_ = stream.get();
    if (stream) return Status::Ok();
    auto fresh = std::make_unique<DeviceStream>(device);
    FRD_RETURN_IF_ERROR(fresh->Open());
    stream = std::move(fresh);
    stream_ = stream.get();
    return Status::Ok();
  }

  // Waits until the device has ended its work, which it does once the communicator is destroyed.
  void AwaitDevice() {
    const TimePoint end = Now() + patience_.device;
    bool passed = !stream_->Mark().ok();  // a device that cannot record an event has failed
    while (!passed && stream_->HasPassed(&passed).ok() && !passed && Now() < end)
      std::this_thread::sleep_for(kPollInterval);
    if (passed) return;
    stream_->Leave();
    Log(LogLevel::kWarning, stream_->device()->name(), " has not come back within ", patience_.device.count() / 1000,
        " s from an operation of NCCL that was given up, and may still write to its tensors; end this process rather "
        "than going on with it");
  }

  // A call that has not returned may still use streams and scratch, so they are never freed.
  void LeaveStreams() {
    for (auto& [device, stream] : streams_) stream->Leave();
  }

  // ---- tasks

  void AwaitNccl(State state) {
    state_ = state;
    asked_ = Now();
  }

  // Takes a step of the task, and further steps as long as each leads to the next at once.
  Status Advance(bool* moved, bool* done) {
    if (state_ == State::kGathering) {
      FRD_RETURN_IF_ERROR(communicators_->Poll(moved, &communicator_));
      if (communicator_ == nullptr) return Status::Ok();
      AwaitNccl(State::kOpening);
    }
    if (state_ == State::kOver) {
      *moved = *done = true;
      return Status::Ok();
    }
    bool ready = false;
    const Status polled = communicator_->Poll(&ready, &code_);
    if (!polled.ok()) return state_ == State::kOpening ? communicators_->Explained(polled, *task_->set) : polled;
    if (!ready) return Status::Ok();
    const State before = state_;
    FRD_RETURN_IF_ERROR(GoOn(moved));
    if (state_ == before) return Status::Ok();
    *moved = true;
    return Advance(moved, done);
  }

  // REQUIRES: the communicator is ready.
  Status GoOn(bool* moved) {
    switch (state_) {
      case State::kOpening:
        AwaitNccl(State::kLaunching);
        return IsRelayed() ? relay_->Begin(*task_, communicator_, stream_)
                           : launch_->Begin(*task_, communicator_, stream_);
      case State::kLaunching:
        state_ = State::kRunning;
        if (IsRelayed()) FRD_RETURN_IF_ERROR(relay_->Follow());
        FRD_RETURN_IF_ERROR(stream_->Mark());
        waker_.WakeAfter(stream_->device(), stream_->stream());
        return Status::Ok();
      case State::kRunning:
        return LookAtDevice();
      case State::kEnding:
        state_ = State::kOver;
        return Status::Ok();
      default:
        return LookAtCrossing(moved);
    }
  }

  Status LookAtDevice() {
    bool passed = false;
    FRD_RETURN_IF_ERROR(stream_->HasPassed(&passed));
    if (!passed) return Status::Ok();
    const bool crosses = IsRelayed() && !relay_->is_back();
    AwaitNccl(crosses ? State::kCrossing : State::kEnding);
    if (crosses) {
      relay_->Cross();
    } else if (!IsRelayed()) {
      launch_->End();
    }
    return Status::Ok();
  }

  Status LookAtCrossing(bool* moved) {
    bool crossed = false;
    FRD_RETURN_IF_ERROR(relay_->PollCross(moved, &crossed));
    if (!crossed) return Status::Ok();
    AwaitNccl(relay_->goes_back() ? State::kLaunching : State::kEnding);
    return relay_->goes_back() ? relay_->Return() : Status::Ok();
  }

  World* const world_;
  const Settings settings_;
  Backend* const host_backend_;
  const NcclPatience patience_;
  const Waker waker_;
  const NcclLibrary* nccl_ = nullptr;

  std::map<Device*, std::unique_ptr<DeviceStream>> streams_;
  std::unique_ptr<Communicators> communicators_;
  std::unique_ptr<Launch> launch_;
  std::unique_ptr<Relay> relay_;
  Device* last_device_ = nullptr;
  bool is_aborted_ = false;

  // The current task.
  const Task* task_ = nullptr;
  State state_ = State::kOver;
  TimePoint asked_{};  // when NCCL was asked for what this state waits for
  DeviceStream* stream_ = nullptr;
  Communicator* communicator_ = nullptr;
  Status failed_;
  int code_ = 0;           // NCCL's last answer
  TimePoint said_from_{};  // from when on failed_ is reported
};

Status FindNccl(const Settings& settings, std::string* library) {
  const NcclLibrary* found = nullptr;
  FRD_RETURN_IF_ERROR(OpenNccl(settings, &found));
  *library = found->name();
  return Status::Ok();
}

std::unique_ptr<Backend> Make(World* world, const Settings& settings, Backend* host_backend) {
  NcclPatience patience;
  patience.abort = std::chrono::milliseconds(settings.abort_patience_ms);
  return MakeNcclBackend(world, settings, host_backend, patience);
}

}  // namespace

std::unique_ptr<Backend> MakeNcclBackend(World* world, const Settings& settings, Backend* host_backend,
                                         const NcclPatience& patience) {
  return std::make_unique<Nccl>(world, settings, host_backend, patience);
}

const BackendKind kNccl{"nccl", NcclSupports, true, true, FindNccl, Make};

}  // namespace farandole
