#include "engine/engine.h"

#include <algorithm>

#include "common/log.h"
#include "engine/small.h"

namespace farandole {
namespace {

constexpr size_t kWindow = 64;         // names that the unnamed operations of one signature take in turn
constexpr size_t kMostWindows = 1024;  // signatures remembered

// In flight, as far as anybody still asks.
bool IsBusy(const std::weak_ptr<Operation>& operation) {
  const OperationPtr held = operation.lock();
  return held && !held->done();
}

}  // namespace

ArenaPlan Engine::PlanFor(int world_size) {
  return {Board::BytesFor(world_size), Registry::StagingBytesPerMember(), kMaxChannels};
}

Status Engine::Start(WorldSpec spec, const Settings& settings, std::unique_ptr<Engine>* engine) {
  ConfigureLog(static_cast<LogLevel>(settings.log_level), spec.rank);
  if (spec.size == 1) {
    engine->reset(new Engine(settings));
    return Status::Ok();
  }
  spec.plan = PlanFor(spec.size);
  spec.arenas = settings.arenas;
  spec.interface_address = settings.interface_address;
  spec.settings = SharedSettingsOf(settings);
  std::unique_ptr<World> world;
  FRD_RETURN_IF_ERROR(Bootstrap(spec, After(std::chrono::milliseconds(settings.start_timeout_ms)), &world));
  return Start(std::move(world), settings, engine);
}

Status Engine::Start(std::unique_ptr<World> world, const Settings& settings, std::unique_ptr<Engine>* result) {
  std::unique_ptr<Engine> engine(new Engine(settings));
  engine->rank_ = world->rank;
  engine->size_ = world->size;
  engine->world_ = std::move(world);
  engine->table_ = std::make_unique<Table>(engine->world_->layout, engine->rank_, engine->world_->group->board());
  engine->conductor_ =
      std::make_unique<Conductor>(engine->world_.get(), engine->table_.get(), &engine->role_, settings);
  FRD_RETURN_IF_ERROR(engine->conductor_->Open());
  Arm(engine->world_->group->bell());
  engine->loop_ = std::thread(&Engine::Loop, engine.get());
  *result = std::move(engine);
  return Status::Ok();
}

void Engine::Shutdown() {
  if (!loop_.joinable()) return;
  StopLoop();
  while (!role_.TryTake()) role_.WaitForChange([] { return false; }, std::chrono::milliseconds(1));
  conductor_->Leave();
  conductor_->CloseConnections();
  // The role stays taken: there is nothing left to drive.
}

// ---- submitting

Status Engine::Submit(Request request, OperationPtr* result, bool will_wait) {
  FRD_RETURN_IF_ERROR(CheckRequest(request, size_));
  auto operation = std::make_shared<Operation>(std::move(request));
  operation->description = Describe(operation->request);
  FRD_RETURN_IF_ERROR(FindDevice(operation.get()));
  *result = operation;
  if (!table_) return SubmitAlone(operation);
  if (operation->request.name.empty()) NameUnnamed(operation);
  Agreement::Plan plan;
  Agreement::Arrived arrived = Agreement::Arrived::kCounted;
  FRD_RETURN_IF_ERROR(Insert(operation, &plan, &arrived));
  table_->bytes_submitted.fetch_add(static_cast<uint64_t>(operation->description.signature.TotalBytes()),
                                    std::memory_order_relaxed);
  if (arrived == Agreement::Arrived::kLast) {
    CompleteAsLast(operation, plan);
    world_->group->RingOthers();
  }
  const bool own_work = arrived == Agreement::Arrived::kLast || table_->has_outgoing;
  if (own_work && !will_wait) world_->group->RingSelf();
  return Status::Ok();
}

Status Engine::SubmitAlone(const OperationPtr& operation) {
  operation->Complete(operation->host_copy ? PerformAloneFromDevice(operation) : PerformAlone(operation.get()));
  return Status::Ok();
}

Status Engine::FindDevice(Operation* operation) const {
  const Status found = MakeHostCopy(devices_, operation->request, rank_, &operation->host_copy);
  if (found.ok()) return found;
  return {found.code(), operation->description.Title() + ": " + found.message()};
}

Status Engine::PerformAloneFromDevice(const OperationPtr& operation) {
  std::lock_guard<std::mutex> lock(copies_mutex_);
  return copies_.RunAlone(operation, [&operation](const Request& on_host) {
    Operation stand_in(on_host);
    stand_in.description = operation->description;
    const Status status = PerformAlone(&stand_in);
    operation->outputs = std::move(stand_in.outputs);
    return status;
  });
}

// Unnamed operations are named by their signature and their turn modulo a window, so that a program that repeats its calls
// finds their ids known whatever the mix. Turns are equal on all ranks even after a disagreement. With more in flight than
// a window has names, the next gets a name of its own; the coordinator pairs by turn, so the ranks need not choose alike.
void Engine::NameUnnamed(const OperationPtr& operation) {
  const uint64_t fingerprint = Fingerprint(operation->description.signature);
  std::lock_guard<std::mutex> lock(naming_mutex_);
  if (windows_.size() >= kMostWindows) ForgetIdleWindows();
  Window& window = windows_[fingerprint];
  window.resize(kWindow);
  const int64_t turn = next_turn_++;
  std::weak_ptr<Operation>& slot = window[static_cast<size_t>(turn) % kWindow];
  const bool busy = IsBusy(slot);
  const std::string suffix = busy ? "x" + std::to_string(turn) : std::to_string(static_cast<size_t>(turn) % kWindow);
  if (!busy) slot = operation;
  operation->description.name = "#" + std::to_string(fingerprint) + "." + suffix;
  operation->description.turn = turn;
}

void Engine::ForgetIdleWindows() {
  for (auto it = windows_.begin(); it != windows_.end();) {
    const Window& window = it->second;
    it = std::any_of(window.begin(), window.end(), &IsBusy) ? std::next(it) : windows_.erase(it);
  }
}

// Submission, copy and arrival are one step under the lock, see agreement.h.
Status Engine::Insert(const OperationPtr& operation, Agreement::Plan* plan, Agreement::Arrived* arrived) {
  std::lock_guard<std::mutex> lock(table_->mutex);
  if (table_->is_broken) {
    return {table_->broken.code(), operation->description.Title() + " cannot start on rank " + std::to_string(rank_) +
                                       ": " + table_->broken.message() + "; call shutdown and init to begin anew"};
  }
  const Ticket ticket = table_->next_ticket++;
  FRD_RETURN_IF_ERROR(table_->agreement.Submit(operation->description, ticket, plan));
  table_->operations.emplace(ticket, operation);
  table_->in_flight.fetch_add(1);
  if (plan->id >= 0) {
    if (FitsSpan(*plan, *operation)) WriteToSpan(*operation, plan->span, world_->group->member());
    *arrived = table_->agreement.Arrive(*plan);
    if (*arrived == Agreement::Arrived::kRetired) table_->agreement.Redescribe(ticket);
  }
  if (table_->agreement.HasOutgoing()) table_->has_outgoing = true;
  return Status::Ok();
}

// Small reductions have their data in the span; the span of an allgather holds extents.
bool Engine::FitsSpan(const Agreement::Plan& plan, const Operation& operation) const {
  return plan.span != nullptr && operation.request.kind != OpKind::kAllgather;
}

void Engine::CompleteAsLast(const OperationPtr& operation, const Agreement::Plan& plan) {
  if (FitsSpan(plan, *operation)) {
    FoldSpan(*operation, plan.span, size_);
    table_->agreement.CompleteAlone(plan);
  } else {
    table_->agreement.CompleteTogether(plan);
  }
}

// ---- waiting and driving

bool Engine::Wait(const Operation& operation, int64_t limit_ms) {
  const TimePoint limit = Now() + std::chrono::milliseconds(limit_ms);
  while (!operation.done() && Now() < limit) {
    if (role_.TryTake()) {
      Disarm(world_->group->bell());
      DriveUntil(operation, limit);
      LeaveRole();
    } else {
      const auto left = std::chrono::milliseconds(MillisecondsBetween(Now(), limit) + 1);
      role_.WaitForChange([&operation] { return operation.done(); }, left);
    }
  }
  return operation.done();
}

// Polling wins a few microseconds when the others are close, and ruins their compute when it goes on for long: a few
// pauses, some yields, then sleep.
void Engine::DriveUntil(const Operation& operation, TimePoint limit) {
  constexpr int kPauses = 20, kYields = 50, kSleepMs = 20;
  for (int idle = 0; !operation.done();) {
    if (conductor_->Drive()) {
      idle = 0;
    } else if (++idle <= kPauses) {
      CpuPause();
    } else if (idle <= kPauses + kYields) {
      std::this_thread::yield();
    } else {
      if (Now() >= limit || stopping_) return;
      Arm(world_->group->bell());
      if (!conductor_->Drive()) conductor_->Sleep(kSleepMs);
      Disarm(world_->group->bell());
      conductor_->LookAtDescriptors();
      idle = kPauses;
    }
  }
}

// The bell is armed again before the role is free, and then there is a last look: what came in between is the loop
// thread's.
void Engine::LeaveRole() {
  Arm(world_->group->bell());
  const bool left_over = table_->in_flight > 0 && conductor_->Drive();
  role_.Release();
  if (left_over) SignalEvent(world_->group->event());
  if (table_->in_flight > 0 && parked_) {
    std::lock_guard<std::mutex> lock(park_mutex_);
    unpark_.notify_all();
  }
}

void Engine::Loop() {
  while (!stopping_) {
    constexpr int kSleepMs = 50;
    conductor_->Sleep(kSleepMs);
    if (stopping_) return;
    if (role_.TryTake()) {
      DriveWhileBusy();
      role_.Release();
    } else {
      // What woke this thread may have been meant for the caller that drives and sleeps.
      world_->group->RingSelf();
      Park();
    }
  }
}

void Engine::DriveWhileBusy() {
  constexpr int kPauses = 20;
  DoorbellWord& bell = world_->group->bell();
  Disarm(bell);
  conductor_->LookAtDescriptors();
  for (int idle = 0;;) {
    if (conductor_->Drive()) {
      idle = 0;
    } else if (++idle <= kPauses) {
      CpuPause();
    } else {
      Arm(bell);
      if (!conductor_->Drive()) return;
      Disarm(bell);
      idle = 0;
    }
  }
}

// A caller drives. Coming back at once would only take its processor; it says when it leaves work behind.
void Engine::Park() {
  std::unique_lock<std::mutex> lock(park_mutex_);
  parked_ = true;
  unpark_.wait_for(lock, std::chrono::milliseconds(2));
  parked_ = false;
}

void Engine::StopLoop() {
  stopping_ = true;
  SignalEvent(world_->group->event());
  loop_.join();
}

}  // namespace farandole
