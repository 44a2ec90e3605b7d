#include "backends/nccl/nccl.h"

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "backends/introduction.h"
#include "backends/nccl/launch.h"
#include "backends/nccl/meaning.h"
#include "backends/nccl/rows.h"
#include "common/clock.h"
#include "common/log.h"
#include "device/waker.h"

namespace farandole {
namespace {

// An error of a connection may come from the death of a rank, which is worth being told by name, and a little later.
constexpr std::chrono::milliseconds kGrace{500};
// How long a device may take to let go, and how long the end of a communicator may take.
constexpr std::chrono::milliseconds kPatience{5000}, kPatienceAtTheEnd{2000};
constexpr std::chrono::microseconds kPollInterval{50};

// What the members of a set tell each other first. The id is that of position 0.
struct Greeting {
  NcclUniqueId id;
  DeviceIdentity device{};
};

// Alike on all ranks. What others send to each other in an alltoall is not known here.
bool MovesNothing(const Work& work) {
  if (work.kind == OpKind::kAlltoall) return false;
  return (work.kind == OpKind::kAllgather ? ResultBytes(work) : work.TotalBytes()) == 0;
}

class Nccl final : public Backend {
 public:
  Nccl(World* world, Settings settings, Backend* carrier)
      : world_(world), settings_(std::move(settings)), introduction_(carrier), waker_(world->group->event()) {}

  ~Nccl() override {
    if (world_->group->abort_word().set()) return;  // the communicators are aborted
    for (auto& [id, communicator] : communicators_) Finish(std::move(communicator));
    const TimePoint end = Now() + kPatienceAtTheEnd;
    while (!leaving_.empty() && Now() < end) {
      if (!PollLeaving()) std::this_thread::sleep_for(kPollInterval);
    }
  }

  const char* name() const override { return kNccl.name; }

  Status Open() override {
    FRD_RETURN_IF_ERROR(OpenNccl(settings_, &nccl_));
    launch_ = std::make_unique<Launch>(*nccl_);
    return Status::Ok();
  }

  Status Start(const Work* work) override {
    if (is_aborted_) return Internal("NCCL cannot be used any more, since one of its operations was given up");
    work_ = work;
    state_ = State::kOver;
    if (MovesNothing(*work)) return Status::Ok();
    FRD_RETURN_IF_ERROR(Here(FindLane()));
    communicator_ = communicators_[work->set->id].get();
    state_ = State::kOpening;
    return communicator_ != nullptr ? Status::Ok() : Here(Introduce());
  }

  Status Poll(bool* moved, bool* done) override {
    *moved |= PollLeaving();
    if (failed_.ok()) {
      failed_ = Here(Advance(moved, done));
      const bool may_be_a_death = code_ == kNcclSystemError || code_ == kNcclRemoteError;
      said_from_ = Now() + (may_be_a_death ? kGrace : std::chrono::milliseconds(0));
    }
    return Now() < said_from_ ? Status::Ok() : failed_;
  }

  std::vector<int> Laggards() const override {
    return state_ == State::kIntroducing ? introduction_.Laggards() : std::vector<int>();
  }

  std::string Standstill() const override {
    // From 2.22 on, ranks are connected when they first perform something.
    if (state_ == State::kOpening || state_ == State::kLaunching)
      return nccl_->name() + ", which has not connected the ranks" + Advice() + ",";
    if (state_ == State::kRunning)
      return nccl_->name() + ", which does not come to an end on " + lane_->device()->name() +
             " (is the GPU busy with something else, or the network that NCCL_DEBUG=INFO names gone?),";
    return "";
  }

  void Abort() override {
    const State state = state_;
    state_ = State::kOver;
    is_aborted_ = true;
    if (state == State::kIntroducing) introduction_.Abort();
    leaving_.clear();
    communicators_.clear();
    if (state == State::kLaunching || state == State::kRunning) AwaitLane();
  }

  void Forget(int set_id) override {
    const auto found = communicators_.find(set_id);
    if (found == communicators_.end()) return;
    Finish(std::move(found->second));
    communicators_.erase(found);
  }

 private:
  enum class State { kIntroducing, kOpening, kLaunching, kRunning, kOver };

  Status Here(Status status) const {
    if (status.ok()) return status;
    return {status.code(), world_->NameOf(world_->rank) + ": " + status.message()};
  }

  // ---- the device

  Status FindLane() {
    Device* device = nullptr;
    if (const auto known = communicators_.find(work_->set->id); known != communicators_.end() && known->second)
      device = known->second->device();
    for (const Segment& segment : work_->segments) {
      if (segment.device == nullptr) continue;
      if (device != nullptr && device != segment.device) {
        return Invalid("tensors of process set " + std::to_string(work_->set->id) + " lie on " + device->name() +
                       " and on " + segment.device->name() +
                       "; with NCCL a rank has one device for all of a set: choose it once, by local_rank()");
      }
      device = segment.device;
    }
    if (device == nullptr) device = last_device_;
    if (device == nullptr)
      return Invalid("this rank has joined before it had a tensor on a device, so NCCL does not know which is its own");
    last_device_ = device;
    std::unique_ptr<Lane>& lane = lanes_[device];
    lane_ = lane.get();
    if (lane) return Status::Ok();
    auto fresh = std::make_unique<Lane>(device);
    FRD_RETURN_IF_ERROR(fresh->Open());
    lane = std::move(fresh);
    lane_ = lane.get();
    return Status::Ok();
  }

  // The device gives up what it was told, now that the communicator is gone.
  void AwaitLane() {
    const TimePoint end = Now() + kPatience;
    bool passed = !lane_->Mark().ok();  // then it is beyond hope
    while (!passed && lane_->HasPassed(&passed).ok() && !passed && Now() < end)
      std::this_thread::sleep_for(kPollInterval);
    if (passed) return;
    lane_->Leave();
    Log(LogLevel::kWarning, lane_->device()->name() + " has not come back within " +
                                std::to_string(kPatience.count() / 1000) +
                                " s from an operation of NCCL that was given up, and may still write to its tensors; "
                                "end this process rather than going on with it");
  }

  // ---- communicators

  Status Introduce() {
    Greeting mine;
    mine.device = lane_->device()->identity();
    if (work_->set->position == 0) {
      FRD_RETURN_IF_ERROR(lane_->device()->Within([&] {
        const int code = nccl_->get_unique_id.pointer(&mine.id);
        if (code == kNcclSuccess) return Status::Ok();
        return nccl_->Failed(nccl_->get_unique_id.name, code, nullptr, lane_->device()->name());
      }));
    }
    state_ = State::kIntroducing;
    return introduction_.Start(*work_->set, std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)));
  }

  Status Meet() {
    greetings_.clear();
    for (const std::string& each : introduction_.greetings()) {
      Greeting greeting;
      std::memcpy(&greeting, each.data(), sizeof(greeting));
      greetings_.push_back(greeting);
    }
    auto fresh = std::make_unique<Communicator>(*nccl_, lane_->device());
    communicator_ = fresh.get();
    communicators_[work_->set->id] = std::move(fresh);
    return Explained(communicator_->Begin(greetings_[0].id, work_->set->position, work_->set->size()));
  }

  // Between hosts it needs a network that it can use, and there is no way round it.
  std::string Advice() const {
    std::set<std::string> hosts;
    for (int rank : work_->set->ranks) hosts.insert(world_->cards[static_cast<size_t>(rank)].host);
    if (hosts.size() < 2) return " (NCCL_DEBUG=INFO lets it say why)";
    std::string names;
    for (const std::string& host : hosts) names += (names.empty() ? "" : ", ") + host;
    return " of the hosts " + names +
           " (is there a network between them that NCCL can use? NCCL_SOCKET_IFNAME chooses one, NCCL_DEBUG=INFO lets "
           "it say why; where there is none, take nccl out of FARANDOLE_BACKEND)";
  }

  // Ranks that share a device are what most often keeps a communicator from being made.
  Status Explained(const Status& status) const {
    if (status.ok()) return status;
    for (size_t i = 0; i < greetings_.size(); ++i) {
      for (size_t j = i + 1; j < greetings_.size(); ++j) {
        if (greetings_[i].device != greetings_[j].device) continue;
        return {status.code(), status.message() + "; " + world_->NameOf(work_->set->ranks[i]) + " and " +
                                   world_->NameOf(work_->set->ranks[j]) +
                                   " use the same GPU: give each its own, by local_rank() or CUDA_VISIBLE_DEVICES; "
                                   "or set NCCL_MULTI_RANK_GPU_ENABLE=1, with NCCL 2.30 or newer"};
      }
    }
    return {status.code(), status.message() + "; it was connecting the ranks" + Advice()};
  }

  void Finish(std::unique_ptr<Communicator> communicator) {
    if (communicator && communicator->Finish().ok()) leaving_.push_back(std::move(communicator));
  }

  bool PollLeaving() {
    const auto is_gone = [](const std::unique_ptr<Communicator>& communicator) {
      bool ready = false;
      int code = 0;
      return !communicator->Poll(&ready, &code).ok() || ready;
    };
    const auto gone = std::remove_if(leaving_.begin(), leaving_.end(), is_gone);
    const bool any = gone != leaving_.end();
    leaving_.erase(gone, leaving_.end());
    return any;
  }

  // ---- works

  Status Advance(bool* moved, bool* done) {
    if (state_ == State::kIntroducing) {
      bool introduced = false;
      FRD_RETURN_IF_ERROR(introduction_.Poll(moved, &introduced));
      if (!introduced) return Status::Ok();
      FRD_RETURN_IF_ERROR(Meet());
      state_ = State::kOpening;
    }
    if (state_ == State::kOver) {
      *moved = *done = true;
      return Status::Ok();
    }
    bool ready = false;
    const Status polled = communicator_->Poll(&ready, &code_);
    if (!polled.ok()) return state_ == State::kOpening ? Explained(polled) : polled;
    if (ready && state_ == State::kOpening) {
      *moved = true;
      state_ = State::kLaunching;
      FRD_RETURN_IF_ERROR(launch_->Begin(*work_, communicator_, lane_));
      return Advance(moved, done);
    }
    if (ready && state_ == State::kLaunching) {
      *moved = true;
      FRD_RETURN_IF_ERROR(lane_->Mark());
      waker_.WakeAfter(lane_->device(), lane_->stream());
      state_ = State::kRunning;
    }
    return state_ == State::kRunning ? LookAtDevice(moved, done) : Status::Ok();
  }

  Status LookAtDevice(bool* moved, bool* done) {
    bool passed = false;
    FRD_RETURN_IF_ERROR(lane_->HasPassed(&passed));
    if (!passed) return Status::Ok();
    *moved = *done = true;
    state_ = State::kOver;
    return launch_->End();
  }

  World* const world_;
  const Settings settings_;
  Introduction introduction_;
  const Waker waker_;
  const NcclLibrary* nccl_ = nullptr;

  std::map<Device*, std::unique_ptr<Lane>> lanes_;
  std::map<int, std::unique_ptr<Communicator>> communicators_;  // by set
  std::vector<std::unique_ptr<Communicator>> leaving_;
  std::vector<Greeting> greetings_;  // of the set whose communicator was made last
  Device* last_device_ = nullptr;
  bool is_aborted_ = false;

  const Work* work_ = nullptr;
  State state_ = State::kOver;
  Lane* lane_ = nullptr;
  Communicator* communicator_ = nullptr;
  std::unique_ptr<Launch> launch_;
  Status failed_;
  int code_ = 0;  // what NCCL said last
  TimePoint said_from_{};
};

Status FindNccl(const Settings& settings, std::string* library) {
  const NcclLibrary* found = nullptr;
  FRD_RETURN_IF_ERROR(OpenNccl(settings, &found));
  *library = found->name();
  return Status::Ok();
}

std::unique_ptr<Backend> MakeNccl(World* world, const Settings& settings, Backend* carrier) {
  return std::make_unique<Nccl>(world, settings, carrier);
}

}  // namespace

const BackendKind kNccl{"nccl", NcclSupports, true, FindNccl, MakeNccl};

}  // namespace farandole
