#include "engine/engine.h"

#include "common/log.h"
#include "engine/nvtx.h"
#include "engine/on_device.h"
#include "engine/small.h"
#include "engine/submit.h"
#include "engine/trace/timeline.h"
#include "world/descriptors.h"

namespace farandole {
namespace {

// Polling of a caller that waits, before it sleeps. The engine's own thread only pauses. With more ranks than cores a
// caller that pauses keeps the one away for whom it waits, so it yields at once: four ranks on two cores took 1 to 20 %
// less for 128 KB, and from 17 % less to 7 % more for 256 KB. (Pausing for the last one alone won 5 % at 4 bytes, and
// lost as much with three.) A small call pauses under the table's lock, so others may wait as long for that.
constexpr int kPauses = 20, kYields = 50;

size_t BytesOf(const Request& request) {
  size_t total = 0;
  for (const Tensor& tensor : request.tensors) total += tensor.size_bytes();
  return total;
}

}  // namespace

SegmentPlan Engine::PlanFor(int world_size) {
  return {Board::BytesFor(world_size), Registry::StagingBytesPerMember(), kMaxChannels};
}

Status Engine::Start(WorldSpec spec, Settings settings, std::unique_ptr<Engine>* engine) {
  ConfigureLog(static_cast<LogLevel>(settings.log_level), spec.rank);
  BackendList backend_list;
  FRD_RETURN_IF_ERROR(BackendList::Read(settings.backends, &backend_list, settings.without_network));
  if (spec.size == 1) {
    // Nothing to carry; but what is wrong with more ranks is wrong with one.
    FRD_RETURN_IF_ERROR(Registry::FindAll(settings, backend_list));
    engine->reset(new Engine(settings));
    const Layout alone = MakeLayout({PeerInfo()}, {false});
    (*engine)->alone_ = std::make_unique<ProcessSets>(alone, 0);
    (*engine)->everybody_ = (*engine)->alone_->Find(0);
    return Status::Ok();
  }
  FRD_RETURN_IF_ERROR(ProvideDescriptors(spec.size));
  spec.plan = PlanFor(spec.size);
  spec.shares_memory = settings.shares_memory;
  if (!spec.interface_address.empty()) settings.interface_address = spec.interface_address;
  spec.interface_address = settings.interface_address;
  spec.settings = SharedSettingsOf(settings);
  spec.settings.emplace_back("FARANDOLE_BACKEND", backend_list.ToString());
  for (auto& network : NetworksOf(settings)) spec.settings.push_back(std::move(network));
  for (auto& library : Registry::Libraries(settings, backend_list)) spec.settings.push_back(std::move(library));
  std::unique_ptr<World> world;
  FRD_RETURN_IF_ERROR(Bootstrap(spec, After(std::chrono::milliseconds(settings.start_timeout_ms)), &world));
  return Start(std::move(world), settings, engine);
}

Status Engine::Start(std::unique_ptr<World> world, const Settings& settings, std::unique_ptr<Engine>* result) {
  std::unique_ptr<Engine> engine(new Engine(settings));
  engine->rank_ = world->rank;
  engine->size_ = world->size;
  engine->world_ = std::move(world);
  Negotiation::Limits limits;
  if (settings.log_entries > 0) limits.log_entries = settings.log_entries;
  engine->table_ =
      std::make_unique<Table>(engine->world_->layout, engine->rank_, engine->world_->group->board(), limits);
  engine->everybody_ = engine->table_->negotiation.FindSet(0);
  const bool crowded = engine->world_->group->count() > static_cast<int>(std::thread::hardware_concurrency());
  engine->pauses_ = crowded ? 0 : kPauses;
  FRD_RETURN_IF_ERROR(BackendList::Read(settings.backends, &engine->backend_list_, settings.without_network));
  engine->progress_ = std::make_unique<ProgressLoop>(engine->world_.get(), engine->table_.get(),
                                                     &engine->progress_lock_, settings, engine->backend_list_);
  if (const Status opened = engine->progress_->Open(); !opened.ok()) {
    engine->progress_->GiveUp(opened);
    return opened;
  }
  Arm(engine->world_->group->bell());
  engine->loop_ = std::thread(&Engine::Loop, engine.get());
  *result = std::move(engine);
  return Status::Ok();
}

void Engine::Shutdown() {
  if (!loop_.joinable()) return;
  StopLoop();
  while (!progress_lock_.TryTake()) progress_lock_.WaitForChange([] { return false; }, std::chrono::milliseconds(1));
  progress_->Leave();
  progress_->CloseConnections();
  // The progress lock stays taken: there is nothing left to drive.
}

// ---- submitting

Status Engine::Submit(Request request, OperationPtr* result, bool will_wait) {
  ProcessSetPtr found = FindSet(request.process_set);
  if (!found) return NoProcessSet(request.process_set, rank_);
  const ProcessSet* const set = found.get();
  if (const Status checked = Check(&request, *set); !checked.ok()) {
    if (ChangesSets(request.kind)) TellOfRefusal(checked.message(), request.site);
    return checked;
  }
  if (request.ready == Ready::kAfterAll) FRD_RETURN_IF_ERROR(Mark(&request));
  *result = std::make_shared<Operation>(std::move(request));
  const OperationPtr& operation = *result;
  operation->plan.set = std::move(found);
  operation->submitted_ns = Timeline::Stamp();
  const bool alone = !table_ || (set->size() == 1 && set->id != 0);
  if (!alone) FRD_RETURN_IF_ERROR(ChooseBackend(backend_list_, *set, operation.get()));
  FRD_RETURN_IF_ERROR(FindDevice(operation.get()));
  operation->nvtx_range = Nvtx::Begin(*operation);
  if (alone) return SubmitAlone(operation);
  table_->bytes_submitted.fetch_add(static_cast<uint64_t>(BytesOf(operation->request)), std::memory_order_relaxed);
  const Status begun = Begin(operation, will_wait);
  if (!begun.ok()) operation->Abandon(begun);
  return begun;
}

Status Engine::Begin(const OperationPtr& operation, bool will_wait) {
  if (operation->request.kind == OpKind::kJoin) return SubmitJoin(operation);
  OperationPtr before;
  if (operation->request.name.empty()) before = table_->naming.Name(operation);
  if (before) return Defer(world_.get(), table_.get(), operation, std::move(before));
  return Enter(world_.get(), table_.get(), operation, will_wait);
}

// Before the operation takes its turn, so that a rank that goes on after a refusal keeps in step.
Status Engine::Check(Request* request, const ProcessSet& set) const {
  FRD_RETURN_IF_ERROR(CheckRequest(request, set, size_));
  if (!table_ || request->kind != OpKind::kRemoveProcessSet) return Status::Ok();
  const auto removed = static_cast<int>(request->ranks[0]);
  std::lock_guard<std::mutex> lock(table_->mutex);
  for (const Deferred& waiting : table_->deferred) {
    if (waiting.operation->set() == removed) return InUse(removed, waiting.operation->Title(), rank_);
  }
  return table_->negotiation.CanRemove(removed);
}

int Engine::LostRank(std::string* reason) const {
  if (!table_) return -1;
  std::lock_guard<std::mutex> lock(table_->mutex);
  if (!table_->has_missed_lost || table_->broken_by == rank_) return -1;
  *reason = table_->broken.message();
  return table_->broken_by;
}

void Engine::TellOfRefusal(const std::string& why, const std::string& site) {
  if (!table_) return;
  const int64_t turn = table_->naming.turns()[0];
  const std::string text = (site.empty() ? "" : " (" + site + ")") + ": " + why;
  {
    std::lock_guard<std::mutex> lock(table_->mutex);
    if (table_->is_broken || table_->join) return;
    table_->negotiation.TellOfRefusal(turn, text);
    table_->has_outgoing = true;
  }
  world_->group->RingSelf();
}

ProcessSetPtr Engine::FindSet(int id) {
  if (id == 0) return everybody_;
  std::lock_guard<std::mutex> lock(table_ ? table_->mutex : alone_mutex_);
  return table_ ? table_->negotiation.FindSet(id) : alone_->Find(id);
}

Status Engine::SubmitAlone(const OperationPtr& operation) {
  const Request& request = operation->request;
  Status status;
  if (operation->host_copy) {
    status = PerformAloneFromDevice(operation);
  } else if (CarriesTensors(request.kind)) {
    status = PerformAlone(operation.get());
  }
  if (request.kind == OpKind::kJoin) operation->outputs = {NumbersOutput({rank_}, true)};
  if (ChangesSets(request.kind)) status = ChangeSetsAlone(operation.get());
  operation->Complete(status);
  return Status::Ok();
}

Status Engine::ChangeSetsAlone(Operation* operation) {
  const Request& request = operation->request;
  std::lock_guard<std::mutex> lock(alone_mutex_);
  if (request.kind == OpKind::kAddProcessSet) {
    FRD_RETURN_IF_ERROR(alone_->CanAdd({0}));
    operation->outputs = {NumbersOutput({alone_->Add({0})}, true)};
    return Status::Ok();
  }
  const auto id = static_cast<int>(request.ranks[0]);
  FRD_RETURN_IF_ERROR(alone_->CanRemove(id));
  alone_->Remove(id);
  return Status::Ok();
}

Status Engine::Mark(Request* request) const {
  const Status marked = MarkReady(devices_, request);
  if (marked.ok()) return marked;
  return {marked.code(), Operation(*request).Title() + ": " + marked.message()};
}

Status Engine::FindDevice(Operation* operation) {
  const bool stays = Registry::TakesDeviceMemory(operation->backend);
  const Status found = stays ? FindDeviceOf(devices_, operation->request, &operation->device)
                             : MakeHostCopy(devices_, operation->request, rank_, &operation->host_copy);
  if (found.ok() && stays && AllocatesOutput(operation->request.kind) && operation->device == nullptr) {
    return Invalid(operation->Title() +
                   ": a tensor without elements needs an address on its device, too, since the result lies there");
  }
  if (!found.ok()) return {found.code(), operation->Title() + ": " + found.message()};
  if (operation->device != nullptr && AllocatesOutput(operation->request.kind)) {
    operation->results = results_.Of(operation->device);
  }
  return found;
}

Status Engine::PerformAloneFromDevice(const OperationPtr& operation) {
  std::lock_guard<std::mutex> lock(copies_mutex_);
  return copies_.RunAlone(operation, [&operation](const Request& on_host) {
    Operation stand_in(on_host);
    stand_in.SetName(operation->name(), operation->turn());
    const Status status = PerformAlone(&stand_in);
    operation->outputs = std::move(stand_in.outputs);
    return status;
  });
}

Status Engine::SubmitJoin(const OperationPtr& operation) {
  {
    std::lock_guard<std::mutex> lock(table_->mutex);
    if (table_->is_broken) return {table_->broken.code(), "join cannot start: " + table_->broken.message()};
    if (table_->join) return Invalid("rank " + std::to_string(rank_) + " has joined already; wait for that to end");
    table_->join = operation;
    table_->wants_join = true;
    table_->in_flight.fetch_add(1);
  }
  world_->group->RingSelf();
  return Status::Ok();
}

// ---- waiting and driving

bool Engine::Poll(const OperationPtr& operation) {
  if (operation->done()) return true;
  if (operation->deferred || !operation->plan.cells || !table_->negotiation.IsReady(operation->plan)) return false;
  if (!CompleteIfReady(world_.get(), table_.get(), operation)) return operation->done();
  WakeForDeferred(world_.get(), *table_);
  progress_lock_.NotifyWaiters();
  return true;
}

bool Engine::Wait(const OperationPtr& operation, int64_t limit_ms) {
  return operation->done() || AwaitSmall(operation) || DriveOrSleep(*operation, limit_ms);
}

bool Engine::DriveOrSleep(const Operation& operation, int64_t limit_ms) {
  const TimePoint limit = Now() + std::chrono::milliseconds(limit_ms);
  while (!operation.done() && Now() < limit) {
    if (progress_lock_.TryTake()) {
      Disarm(world_->group->bell());
      DriveUntil(operation, limit);
      ReleaseProgressLock();
    } else {
      const auto left = std::chrono::milliseconds(MillisecondsBetween(Now(), limit) + 1);
      progress_lock_.WaitForChange([&operation] { return operation.done(); }, left);
    }
  }
  if (!operation.done()) AskForBells(table_.get());
  return operation.done();
}

bool Engine::Run(const RequestView& request, Status* status) {
  if (!table_ || !SmallCall::CanBe(request)) return false;
  if (!backend_list_.only_ours() || Timeline::on() || Nvtx::on()) return false;
  thread_local std::string name;  // it keeps its memory
  name = request.name;
  SmallCall call(request, name);
  if (!Enter(world_.get(), table_.get(), &call, pauses_)) return false;
  table_->bytes_submitted.fetch_add(call.size_bytes(), std::memory_order_relaxed);
  *status = Status::Ok();
  if (!LookUntil([&] { return CompleteIfReady(world_.get(), table_.get(), &call); }, pauses_)) {
    std::lock_guard<std::mutex> lock(table_->mutex);
    table_->operations.MakeOperation();
  }
  if (!call.became()) return true;
  while (!DriveOrSleep(*call.became(), kForGoodMs)) {
  }
  *status = call.became()->status();
  return true;
}

// A small operation needs no driver: its data comes by itself. `paused`: so many of its pauses are spent.
template <typename Look>
bool Engine::LookUntil(Look look, int paused) {
  for (int idle = paused; idle < pauses_ + kYields; ++idle) {
    if (look()) return true;
    idle < pauses_ ? CpuPause() : std::this_thread::yield();
  }
  return false;
}

bool Engine::AwaitSmall(const OperationPtr& operation) {
  if (operation->deferred || !operation->plan.cells) return false;
  return LookUntil([&] { return Poll(operation); });
}

// Polling wins a few microseconds when the others are close, and ruins their compute when it goes on for long: a few
// pauses, some yields, then sleep.
void Engine::DriveUntil(const Operation& operation, TimePoint limit) {
  constexpr int kSleepMs = 20;
  for (int idle = 0; !operation.done();) {
    if (progress_->Drive()) {
      idle = 0;
    } else if (++idle <= pauses_) {
      CpuPause();
    } else if (idle <= pauses_ + kYields) {
      std::this_thread::yield();
    } else {
      if (Now() >= limit || stopping_) return;
      AskForBells(table_.get());
      Arm(world_->group->bell());
      if (!progress_->Drive()) progress_->Sleep(kSleepMs);
      Disarm(world_->group->bell());
      progress_->LookAtDescriptors();
      idle = pauses_;
    }
  }
}

// The bell is armed again before the progress lock is free, and then there is a last look: what came in between is left
// to the loop thread.
void Engine::ReleaseProgressLock() {
  AskForBells(table_.get());
  Arm(world_->group->bell());
  const bool left_over = table_->in_flight > 0 && progress_->Drive();
  progress_lock_.Release();
  if (left_over) SignalEvent(world_->group->event());
  if (table_->in_flight > 0 && parked_) {
    std::lock_guard<std::mutex> lock(park_mutex_);
    unpark_.notify_all();
  }
}

void Engine::Loop() {
  while (!stopping_) {
    constexpr int kSleepMs = 50;
    progress_->Sleep(kSleepMs);
    if (stopping_) return;
    if (progress_lock_.TryTake()) {
      DriveWhileBusy();
      progress_lock_.Release();
    } else {
      // What woke this thread may have been meant for the caller that drives and sleeps.
      world_->group->RingSelf();
      Park();
    }
  }
}

void Engine::DriveWhileBusy() {
  DoorbellWord& bell = world_->group->bell();
  Disarm(bell);
  progress_->LookAtDescriptors();
  for (int idle = 0;;) {
    if (progress_->Drive()) {
      idle = 0;
    } else if (++idle <= kPauses) {
      CpuPause();
    } else {
      AskForBells(table_.get());
      Arm(bell);
      if (!progress_->Drive()) return;
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
