#include "backends/blocking.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <utility>

#include "common/log.h"

namespace farandole {

// ---- CallThread

struct CallThread::Shared {
  void Loop();

  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> is_idle{true};  // changed under the mutex; read without it by the owner, which alone clears it
  std::deque<Call> calls;           // guarded by the mutex, as those below
  std::function<void()> wake;
  bool is_ending = false;
  Status failed;
};

void CallThread::Shared::Loop() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return is_ending || !calls.empty(); });
    if (calls.empty()) return;
    Call call = std::move(calls.front());
    calls.pop_front();
    lock.unlock();
    Status status = call();
    call = nullptr;  // releases what the call used before the thread is idle
    lock.lock();
    if (failed.ok()) failed = std::move(status);
    is_idle = calls.empty();
    changed.notify_all();
    if (is_idle && wake) wake();
  }
}

CallThread::~CallThread() {
  bool ends = false;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->is_ending = true;
    shared_->wake = nullptr;
    ends = shared_->is_idle;
    shared_->changed.notify_all();
  }
  ends ? thread_.join() : thread_.detach();
}

CallThread::CallThread(std::function<void()> wake) : shared_(std::make_shared<Shared>()) {
  shared_->wake = std::move(wake);
  thread_ = std::thread([shared = shared_] { shared->Loop(); });
}

void CallThread::Submit(Call call) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->calls.push_back(std::move(call));
  shared_->is_idle = false;
  shared_->changed.notify_all();
}

bool CallThread::TakeResult(Status* status) {
  if (!IsIdle()) return false;
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  *status = std::exchange(shared_->failed, Status());
  return true;
}

bool CallThread::IsIdle() const { return shared_->is_idle; }

bool CallThread::AwaitIdle(TimePoint end) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  return shared_->changed.wait_until(lock, end, [this] { return shared_->is_idle.load(); });
}

// ---- OutOfBandAllgather

Status OutOfBandAllgather::Start(const ProcessSet& set, std::string peer_address) {
  const auto positions = static_cast<size_t>(set.size());
  peer_address_ = std::move(peer_address);
  all_.assign(positions * peer_address_.size(), '\0');
  task_ = Task();
  task_.kind = OpKind::kAllgather;
  task_.set = &set;
  task_.dtype = DType::kUint8;
  task_.buffers = {{peer_address_.data(), all_.data(), peer_address_.size()}};
  task_.rank_bytes.assign(positions, peer_address_.size());
  return host_backend_->Start(&task_);
}

std::vector<std::string> OutOfBandAllgather::peer_addresses() const {
  std::vector<std::string> peer_addresses;
  for (size_t at = 0; at < all_.size(); at += peer_address_.size())
    peer_addresses.push_back(all_.substr(at, peer_address_.size()));
  return peer_addresses;
}

// ---- packing

namespace {

bool IsRoot(const Task& task) { return task.root == task.set->position; }

// Sums of 16-bit floats are scaled before they are sent, so that an average of large values does not overflow on its
// way.
bool ScalesBefore(const Task& task) {
  return Reduces(task.kind) && !task.scale.IsIdentity() && ScalesBeforeExchange(task.dtype, task.reduce);
}

// Copies the inputs together. Those of a rank that has joined are zeros.
void Gather(const Task& task, std::byte* to) {
  const bool receives = OnlyRootSends(task.kind) && !IsRoot(task);
  if (receives) return;
  for (const IoBuffer& buffer : task.buffers) {
    if (buffer.input == nullptr) {
      std::memset(to, 0, buffer.size_bytes);
    } else if (ScalesBefore(task)) {
      Reduce(task.dtype, task.reduce, &buffer.input, 1, buffer.size_bytes / SizeOf(task.dtype), task.scale, to);
    } else if (buffer.size_bytes > 0) {
      std::memcpy(to, buffer.input, buffer.size_bytes);
    }
    to += buffer.size_bytes;
  }
}

// Scales what was not scaled before, and copies results to buffers that are not where the library wrote. A joined
// rank's buffers have no memory, so its results stay in the scratch memory.
void Unpack(const PackedTask& packed) {
  const Task& task = *packed.task;
  if (Reduces(task.kind) && !task.scale.IsIdentity() && !ScalesBefore(task)) {
    const void* const reduced = packed.output;
    const size_t element_count = packed.output_bytes / SizeOf(task.dtype);
    Reduce(task.dtype, task.reduce, &reduced, 1, element_count, task.scale, packed.output);
  }
  if (!Fuses(task.kind)) return;
  const auto* from = static_cast<const std::byte*>(packed.output);
  for (const IoBuffer& buffer : task.buffers) {
    const bool elsewhere = buffer.output != nullptr && buffer.output != from && buffer.size_bytes > 0;
    if (elsewhere) std::memcpy(buffer.output, from, buffer.size_bytes);
    from += buffer.size_bytes;
  }
}

}  // namespace

Status BlockingLibrary::Run(const Task& task) {
  PackedTask packed{&task, task.buffers[0].input, task.buffers[0].output, task.TotalBytes(), task.ResultBytes()};
  FRD_RETURN_IF_ERROR(Pack(&packed));
  FRD_RETURN_IF_ERROR(Perform(packed));
  Unpack(packed);
  return Status::Ok();
}

Status BlockingLibrary::Pack(PackedTask* packed) {
  const Task& task = *packed->task;
  const auto take = [&task](Scratch* scratch, size_t size_bytes, std::byte** memory) {
    *memory = scratch->Get(std::max<size_t>(size_bytes, 1));
    if (*memory != nullptr) return Status::Ok();
    return Internal("there is no memory for ", size_bytes, " bytes to pack the tensors of one ", NameOf(task.kind),
                    "; lower FARANDOLE_FUSION_THRESHOLD or the batch size");
  };
  std::byte* memory = nullptr;
  const bool lacks_input = packed->input == nullptr && packed->input_bytes > 0;
  if (task.buffers.size() > 1 || lacks_input || ScalesBefore(task)) {
    FRD_RETURN_IF_ERROR(take(&inputs_, packed->input_bytes, &memory));
    Gather(task, memory);
    packed->input = memory;
    if (Fuses(task.kind)) packed->output = memory;
  }
  if (packed->output == nullptr) {
    FRD_RETURN_IF_ERROR(take(&outputs_, packed->output_bytes, &memory));
    packed->output = memory;
  }
  if (!OnlyRootSends(task.kind)) return Status::Ok();
  // A library broadcasts in one buffer: the input on the root, which has the data, and the output elsewhere.
  if (IsRoot(task)) packed->output = const_cast<void*>(packed->input);
  packed->input = packed->output;
  return Status::Ok();
}

// ---- a backend

namespace {

// Libraries notice broken connections before any rank knows who is dead, and cannot say who it is. So an error is held
// back until the world's liveness has had the time to name the rank.
constexpr int64_t kSuspicionMs = 1000;

class Blocking final : public Backend {
 public:
  Blocking(const BackendKind& kind, World* world, Backend* host_backend, std::shared_ptr<BlockingLibrary> library,
           std::chrono::milliseconds patience)
      : kind_(kind), patience_(patience), allgather_(host_backend), library_(std::move(library)), thread_([world] {
          world->node->RingSelf();
        }) {}

  ~Blocking() override {
    if (thread_.IsIdle()) return;
    library_->Interrupt();
    if (!is_stuck_) thread_.AwaitIdle(Now() + patience_);
  }

  Status Open() override { return library_->Open(); }

  Status Start(const Task* task) override {
    if (is_stuck_) return Internal(kind_.name, " has not come back from an operation that was given up");
    task_ = task;
    state_ = State::kPerforming;
    if (connected_.count(task->set->id) > 0) {
      Submit({}, false);
      return Status::Ok();
    }
    std::string peer_address;
    FRD_RETURN_IF_ERROR(library_->GetAddress(*task->set, &peer_address));
    if (peer_address.empty()) {
      Submit({}, true);
      return Status::Ok();
    }
    state_ = State::kGathering;
    return allgather_.Start(*task->set, std::move(peer_address));
  }

  Status Poll(bool* moved, bool* done) override {
    if (state_ == State::kGathering) {
      bool gathered = false;
      FRD_RETURN_IF_ERROR(allgather_.Poll(moved, &gathered));
      if (!gathered) return Status::Ok();
      *moved = true;
      state_ = State::kPerforming;
      Submit(allgather_.peer_addresses(), true);
    }
    if (failed_.ok()) {
      if (!thread_.TakeResult(&failed_)) return Status::Ok();
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
    if (state != State::kPerforming || thread_.IsIdle()) return;
    library_->Interrupt();
    is_stuck_ = !thread_.AwaitIdle(Now() + patience_);
    if (is_stuck_) {
      Log(LogLevel::kWarning, kind_.name, " has not come back within ", patience_.count() / 1000,
          " s from an operation that was given up, and may still write to its tensors; end this process rather than "
          "going on with it");
    }
  }

  void Forget(int set_id) override {
    if (connected_.erase(set_id) == 0 || is_stuck_) return;
    thread_.Submit([library = library_, set_id] {
      library->Forget(set_id);
      return Status::Ok();
    });
  }

 private:
  enum class State { kIdle, kGathering, kPerforming };

  // Copies the task and its set, since a library that does not return keeps them for as long as it likes.
  void Submit(std::vector<std::string> peer_addresses, bool connects) {
    if (connects) connected_.insert(task_->set->id);
    thread_.Submit([library = library_, set = *task_->set, task = *task_, peer_addresses = std::move(peer_addresses),
                    connects]() mutable {
      const FloatingPointScope scope;  // libraries may reduce by the core's kernels
      task.set = &set;
      if (connects) FRD_RETURN_IF_ERROR(library->Connect(set, peer_addresses));
      return library->Run(task);
    });
  }

  const BackendKind& kind_;
  const std::chrono::milliseconds patience_;
  OutOfBandAllgather allgather_;
  const std::shared_ptr<BlockingLibrary> library_;
  CallThread thread_;
  std::set<int> connected_;  // the sets whose members have connected, or are about to
  const Task* task_ = nullptr;
  State state_ = State::kIdle;
  bool is_stuck_ = false;
  Status failed_;  // of the current task, held back
  TimePoint failed_at_{};
};

}  // namespace

std::unique_ptr<Backend> MakeBlocking(const BackendKind& kind, World* world, Backend* host_backend,
                                      std::shared_ptr<BlockingLibrary> library, std::chrono::milliseconds patience) {
  return std::make_unique<Blocking>(kind, world, host_backend, std::move(library), patience);
}

}  // namespace farandole
