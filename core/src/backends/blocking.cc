#include "backends/blocking.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/log.h"

namespace farandole {

Status OutOfBandAllgather::Start(const ProcessSet& set, std::string peer_address) {
  const auto positions = static_cast<size_t>(set.size());
  peer_address_ = std::move(peer_address);
  all_.assign(positions * peer_address_.size(), '\0');
  task_ = Task();
  task_.kind = OpKind::kAllgather;
  task_.set = &set;
  task_.dtype = DType::kUint8;
  task_.segments = {{peer_address_.data(), all_.data(), peer_address_.size()}};
  task_.rank_bytes.assign(positions, peer_address_.size());
  return host_backend_->Start(&task_);
}

std::vector<std::string> OutOfBandAllgather::peer_addresses() const {
  std::vector<std::string> peer_addresses;
  for (size_t at = 0; at < all_.size(); at += peer_address_.size())
    peer_addresses.push_back(all_.substr(at, peer_address_.size()));
  return peer_addresses;
}

namespace {

// How long a library may take to heed an abort.
constexpr std::chrono::seconds kPatience{5};
// Libraries notice broken connections before anybody knows who is dead, and cannot say who it is.
constexpr int64_t kSuspicionMs = 1000;

// What the thread shares with the driver. It lives for as long as either of them uses it.
class Worker {
 public:
  using Job = std::function<Status()>;

  Worker(std::shared_ptr<BlockingLibrary> library, std::function<void()> wake_driver)
      : library_(std::move(library)), wake_driver_(std::move(wake_driver)) {}

  static void Run(const std::shared_ptr<Worker>& worker) { worker->Loop(); }

  void Submit(Job job) {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    is_idle_ = false;
    changed_.notify_all();
  }

  // Whether everything submitted is done; then *status is the first that went wrong.
  bool TakeResult(Status* status) {
    if (!is_idle_) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    *status = std::move(failed_);
    failed_ = Status();
    return true;
  }

  bool AwaitIdle(std::chrono::seconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return is_idle_.load(); });
  }

  // The thread ends when it has done what it does; nobody is told of that any more.
  void Stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    wake_driver_ = nullptr;
    changed_.notify_all();
  }

  BlockingLibrary* library() const { return library_.get(); }

 private:
  void Loop() {
    const FloatingPointScope scope;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      const Job task = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      Status status = task();
      lock.lock();
      if (failed_.ok()) failed_ = std::move(status);
      is_idle_ = jobs_.empty();
      changed_.notify_all();
      if (is_idle_ && wake_driver_) wake_driver_();
    }
  }

  const std::shared_ptr<BlockingLibrary> library_;
  std::function<void()> wake_driver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::atomic<bool> is_idle_{true};
  bool stopping_ = false;
  Status failed_;
};

class Blocking final : public Backend {
 public:
  Blocking(const BackendKind& kind, World* world, Backend* host_backend, std::shared_ptr<BlockingLibrary> library)
      : kind_(kind),
        allgather_(host_backend),
        worker_(std::make_shared<Worker>(std::move(library), [world] { world->group->RingSelf(); })) {}

  ~Blocking() override {
    if (!thread_.joinable()) return;
    if (!worker_->AwaitIdle(std::chrono::seconds(0))) worker_->library()->Interrupt();
    const bool ended = !is_stuck_ && worker_->AwaitIdle(kPatience);
    worker_->Stop();
    ended ? thread_.join() : thread_.detach();
  }

  const char* name() const override { return kind_.name; }

  Status Open() override {
    FRD_RETURN_IF_ERROR(worker_->library()->Open());
    thread_ = std::thread(&Worker::Run, worker_);
    return Status::Ok();
  }

  Status Start(const Task* task) override {
    if (is_stuck_) return Internal(std::string(kind_.name) + " has not come back from an operation that was given up");
    task_ = task;
    state_ = State::kPerforming;
    if (met_.count(task->set->id) > 0) {
      Submit({}, false);
      return Status::Ok();
    }
    std::string peer_address;
    FRD_RETURN_IF_ERROR(worker_->library()->Greet(*task->set, &peer_address));
    if (peer_address.empty()) {
      Submit({}, true);
      return Status::Ok();
    }
    state_ = State::kGathering;
    return allgather_.Start(*task->set, std::move(peer_address));
  }

  Status Poll(bool* moved, bool* done) override {
    if (state_ == State::kGathering) {
      bool introduced = false;
      FRD_RETURN_IF_ERROR(allgather_.Poll(moved, &introduced));
      if (!introduced) return Status::Ok();
      *moved = true;
      state_ = State::kPerforming;
      Submit(allgather_.peer_addresses(), true);
    }
    if (failed_.ok()) {
      if (!worker_->TakeResult(&failed_)) return Status::Ok();
      *moved = true;
      failed_at_ = Now();
    }
    if (!failed_.ok() && MillisecondsBetween(failed_at_, Now()) < kSuspicionMs) return Status::Ok();
    *done = failed_.ok();
    state_ = State::kIdle;
    return std::exchange(failed_, Status());
  }

  std::vector<int> WaitingOn() const override {
    return state_ == State::kGathering ? allgather_.WaitingOn() : std::vector<int>();
  }

  void Abort() override {
    const State state = state_;
    state_ = State::kIdle;
    failed_ = Status();
    if (state == State::kGathering) allgather_.Abort();
    if (state != State::kPerforming || worker_->AwaitIdle(std::chrono::seconds(0))) return;
    worker_->library()->Interrupt();
    is_stuck_ = !worker_->AwaitIdle(kPatience);
    if (is_stuck_) {
      Log(LogLevel::kWarning, std::string(kind_.name) + " has not come back within " +
                                  std::to_string(kPatience.count()) +
                                  " s from an operation that was given up, and may still write to its tensors; end "
                                  "this process rather than going on with it");
    }
  }

  void Forget(int set_id) override {
    if (met_.erase(set_id) == 0 || is_stuck_) return;
    const auto worker = worker_.get();
    worker_->Submit([worker, set_id] {
      worker->library()->Forget(set_id);
      return Status::Ok();
    });
  }

 private:
  enum class State { kIdle, kGathering, kPerforming };

  // The work and its set are copied: a library that does not come back has them for as long as it likes.
  void Submit(std::vector<std::string> peer_addresses, bool meet) {
    if (meet) met_.insert(task_->set->id);
    const auto worker = worker_.get();
    worker_->Submit(
        [worker, set = *task_->set, task = *task_, peer_addresses = std::move(peer_addresses), meet]() mutable {
          task.set = &set;
          if (meet) FRD_RETURN_IF_ERROR(worker->library()->Meet(set, peer_addresses));
          return worker->library()->Perform(task);
        });
  }

  const BackendKind& kind_;
  OutOfBandAllgather allgather_;
  const std::shared_ptr<Worker> worker_;
  std::thread thread_;
  std::set<int> met_;  // the sets whose members have met, or are about to
  const Task* task_ = nullptr;
  State state_ = State::kIdle;
  bool is_stuck_ = false;
  Status failed_;  // the work at hand has; told when who is dead had the time to be known
  TimePoint failed_at_{};
};

}  // namespace

std::unique_ptr<Backend> MakeBlocking(const BackendKind& kind, World* world, Backend* host_backend,
                                      std::shared_ptr<BlockingLibrary> library) {
  return std::make_unique<Blocking>(kind, world, host_backend, std::move(library));
}

}  // namespace farandole
