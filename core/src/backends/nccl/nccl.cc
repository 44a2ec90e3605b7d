// The NCCL backend: collectives of tensors on CUDA devices, without copies to the host.
//
//   addresses (NCCL's id, the device) -> communicator -> NCCL's calls in the backend's own stream -> its event -> done
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

#include "backends/nccl/communicators.h"
#include "backends/nccl/launch.h"
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
bool IsEmpty(const Task& task) {
  if (TakesSplits(task.kind)) return false;
  return (RowsDiffer(task.kind) ? task.ResultBytes() : task.TotalBytes()) == 0;
}

class Nccl final : public Backend {
 public:
  Nccl(World* world, Settings settings, Backend* host_backend)
      : world_(world),
        settings_(std::move(settings)),
        patience_(settings_.abort_patience_ms),
        host_backend_(host_backend),
        waker_(world->node->event()) {}

  ~Nccl() override {
    if (communicators_ && !communicators_->Close(!world_->node->abort_word().set())) LeaveStreams();
  }

  Status Open() override {
    FRD_RETURN_IF_ERROR(OpenNccl(settings_, &nccl_));
    communicators_ = std::make_unique<Communicators>(world_, *nccl_, host_backend_, patience_);
    return Status::Ok();
  }

  Status Start(const Task* task) override {
    if (is_aborted_) {
      return Internal(
          "NCCL cannot be used any more, since one of its operations was given up; start the job again from a "
          "checkpoint");
    }
    task_ = task;
    state_ = State::kOver;
    if (IsEmpty(*task)) return Status::Ok();
    FRD_RETURN_IF_ERROR(Here(FindStream()));
    communicator_ = communicators_->Find(task->set->id);
    AwaitNccl(communicator_ != nullptr ? State::kOpening : State::kGathering);
    if (communicator_ == nullptr) communicator_ = communicators_->Open(*task->set, stream_->device());
    return Status::Ok();
  }

  Status Poll(bool* moved, bool* done) override {
    *moved |= communicators_->PollLeaving();
    if (failed_.ok()) {
      failed_ = Here(Advance(moved, done));
      if (!failed_.ok() && communicator_->LostConnection()) said_from_ = Now() + kGrace;
    }
    return Now() < said_from_ ? Status::Ok() : failed_;
  }

  int LongestSleepMs() const override {
    if (state_ == State::kOver || (state_ == State::kRunning && !communicator_->IsBusy())) return -1;
    return Now() - asked_ < kLaunchTime ? 0 : 1;
  }

  std::vector<int> WaitingOn() const override {
    return state_ == State::kGathering ? communicators_->WaitingOn() : std::vector<int>();
  }

  std::string StallReason() const override {
    // From 2.22 on, ranks are connected when they first perform something.
    const bool connects = state_ == State::kOpening || state_ == State::kLaunching;
    const std::string advice = connects ? communicators_->Advice(*task_->set) : " (NCCL_DEBUG=INFO lets it say why)";
    const char* const call = state_ != State::kOver ? communicator_->CallUnderWay() : nullptr;
    if (call != nullptr) {
      return nccl_->name() + ", which has not come back from " + call + " on " + stream_->device()->name() +
             (connects ? " and has not connected the ranks" : "") + advice + ",";
    }
    if (connects) return nccl_->name() + ", which has not connected the ranks" + advice + ",";
    if (state_ != State::kRunning) return "";
    return nccl_->name() + ", which does not come to an end on " + stream_->device()->name() +
           " (the GPU may be busy with something else, or the network that NCCL_DEBUG=INFO names may be gone),";
  }

  void Abort() override {
    const State state = state_;
    state_ = State::kOver;
    is_aborted_ = true;
    const bool is_on_device = state == State::kLaunching || state == State::kRunning;
    Communicator* const working = is_on_device ? communicator_ : nullptr;
    communicator_ = nullptr;
    if (!communicators_->Abort(working)) {
      LeaveStreams();
    } else if (is_on_device) {
      AwaitDevice();
    }
  }

  void Forget(int set_id) override { communicators_->Forget(set_id); }

 private:
  // A task goes through these states from left to right. It has a communicator until it is over.
  enum class State { kGathering, kOpening, kLaunching, kRunning, kOver };

  Status Here(Status status) const {
    if (status.ok()) return status;
    return {status.code(), world_->NameOf(world_->rank), ": ", status.message()};
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
      return Invalid(
          "this rank has joined before it had a tensor on a device, so NCCL does not know which is its own; "
          "let each rank do an operation on its GPU before it calls join()");
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
    const TimePoint end = Now() + patience_;
    bool passed = !stream_->Mark().ok();  // a device that cannot record an event has failed
    while (!passed && stream_->HasPassed(&passed).ok() && !passed && Now() < end)
      std::this_thread::sleep_for(kPollInterval);
    if (passed) return;
    stream_->Leave();
    Log(LogLevel::kWarning, stream_->device()->name(), " has not come back within ", patience_.count() / 1000,
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
    if (state_ == State::kOver) {
      *moved = *done = true;
      return Status::Ok();
    }
    bool ready = false;
    const Status polled = communicator_->Poll(&ready);
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
    bool passed = false;
    switch (state_) {
      case State::kGathering:
        FRD_RETURN_IF_ERROR(communicators_->Connect(*task_->set, moved, &passed));
        if (passed) AwaitNccl(State::kOpening);
        return Status::Ok();
      case State::kOpening:
        AwaitNccl(State::kLaunching);
        return LaunchTask(*nccl_, *task_, communicator_, stream_, &scaled_sum_);
      case State::kLaunching:
        AwaitNccl(State::kRunning);
        if (scaled_sum_) DestroyScaledSum();
        FRD_RETURN_IF_ERROR(stream_->Mark());
        waker_.WakeAfter(stream_->device(), stream_->stream());
        return Status::Ok();
      default:
        FRD_RETURN_IF_ERROR(stream_->HasPassed(&passed));
        if (passed) state_ = State::kOver;
        return Status::Ok();
    }
  }

  void DestroyScaledSum() {
    communicator_->Make([nccl = nccl_, communicator = communicator_, made = *std::exchange(scaled_sum_, nullptr)] {
      return communicator->Call(nccl->destroy_reduce, made, communicator->handle());
    });
  }

  World* const world_;
  const Settings settings_;
  const std::chrono::milliseconds patience_;  // with NCCL and with the device, after an abort
  Backend* const host_backend_;
  const Waker waker_;
  const NcclLibrary* nccl_ = nullptr;

  std::map<Device*, std::unique_ptr<DeviceStream>> streams_;
  std::unique_ptr<Communicators> communicators_;
  Device* last_device_ = nullptr;
  bool is_aborted_ = false;

  // The current task.
  const Task* task_ = nullptr;
  State state_ = State::kOver;
  TimePoint asked_{};  // when NCCL was asked for what this state waits for
  DeviceStream* stream_ = nullptr;
  Communicator* communicator_ = nullptr;
  std::shared_ptr<NcclReduce> scaled_sum_;  // NCCL's reduction for this task alone; null: none
  Status failed_;
  TimePoint said_from_{};  // from when on failed_ is reported
};

Status FindNccl(const Settings& settings, std::string* library) {
  const NcclLibrary* found = nullptr;
  FRD_RETURN_IF_ERROR(OpenNccl(settings, &found));
  *library = found->name();
  return Status::Ok();
}

std::unique_ptr<Backend> MakeNccl(World* world, const Settings& settings, Backend* host_backend) {
  return std::make_unique<Nccl>(world, settings, host_backend);
}

}  // namespace

const BackendKind kNccl{"nccl", NcclSupports, true, FindNccl, MakeNccl};

}  // namespace farandole
