#include "engine/engine.h"

#include "common/log.h"
#include "common/sha256.h"
#include "engine/device_copies.h"
#include "engine/small.h"
#include "engine/timeline.h"

namespace farandole {
namespace {

// All ranks of a job, and its launcher, know its key; what is made of it here tells nobody the key.
std::string RunOf(const Key& job_key) {
  constexpr char kOf[] = "flight recorder";
  const Digest digest = HmacSha256(job_key.data(), job_key.size(), kOf, sizeof kOf - 1);
  std::string run;
  for (size_t i = 0; i < 6; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    run += kDigits[digest[i] >> 4];
    run += kDigits[digest[i] & 15];
  }
  return run;
}

// Null where nothing is recorded: a world of one rank waits for nobody. Ends the recordings of earlier epochs, if any.
std::unique_ptr<FlightRecorder> BeginRecording(const WorldSpec& spec, const Settings& settings) {
  const std::string folder = FlightRecorder::FolderOf(settings.flight_recorder);
  if (folder.empty()) return nullptr;
  const FlightRecorder::Place place{spec.rank, spec.size, RunOf(spec.job_key.value_or(spec.key)), folder, spec.epoch};
  if (spec.size > 1) return FlightRecorder::Make(place);
  if (spec.epoch > 0) FlightRecorder::RemoveEarlier(place);
  return nullptr;
}

}  // namespace

SegmentPlan Engine::PlanFor(int world_size) {
  return {GroupMemory::BytesFor(world_size), NativeStagingBytesPerMember(), kMaxChannels};
}

// The limits that this rank proposes: those of the variable, else those of its machine's file.
Status ReadTuning(const Settings& settings, std::string* tuning) {
  if (settings.tuning.empty()) return Status::Ok();
  *tuning = settings.tuning;
  if (*tuning == kUntuned || ParseTuning(*tuning)) return Status::Ok();
  return Invalid("FARANDOLE_TUNING=", *tuning,
                 " is not understood; allowed: 0, for limits that are not measured, or a line of `farandole bench "
                 "--tune`, such as 2:65536:262144:1:60000");
}

// Rank 0 compares what must be equal on all ranks: settings, the list of backends, their libraries and networks. They
// are sent with this rank's PeerInfo.
Status Engine::Start(WorldSpec spec, Settings settings, std::unique_ptr<Engine>* engine) {
  ConfigureLog(static_cast<LogLevel>(settings.log_level), spec.rank);
  BackendList backend_list;
  FRD_RETURN_IF_ERROR(BackendList::Read(settings.backends, &backend_list, settings.without_network));
  FRD_RETURN_IF_ERROR(ReadTuning(settings, &spec.tuning));
  if (spec.size == 1) {
    // One rank needs no library, but a list that is wrong for more ranks is wrong for one.
    FRD_RETURN_IF_ERROR(BackendTable::FindAll(settings, backend_list));
    BeginRecording(spec, settings);
    engine->reset(new Engine(settings, true));
    (*engine)->everybody_ = (*engine)->solo_.FindSet(0);
    return Status::Ok();
  }
  spec.plan = PlanFor(spec.size);
  spec.shares_memory = settings.shares_memory;
  if (!spec.interface_address.empty()) settings.interface_address = spec.interface_address;
  spec.interface_address = settings.interface_address;
  spec.settings = SharedSettingsOf(settings);
  spec.settings.emplace_back("FARANDOLE_BACKEND", backend_list.ToString());
  for (auto& network : NetworksOf(settings)) spec.settings.push_back(std::move(network));
  for (auto& library : BackendTable::Libraries(settings, backend_list)) spec.settings.push_back(std::move(library));
  std::unique_ptr<World> world;
  FRD_RETURN_IF_ERROR(Bootstrap(spec, After(std::chrono::milliseconds(settings.start_timeout_ms)), &world));
  return Start(std::move(world), settings, engine, BeginRecording(spec, settings));
}

// Starts the driver last, since it answers messages of other ranks from then on.
Status Engine::Start(std::unique_ptr<World> world, const Settings& settings, std::unique_ptr<Engine>* result,
                     std::unique_ptr<FlightRecorder> recorder) {
  std::unique_ptr<Engine> engine(new Engine(settings, false));
  engine->rank_ = world->rank;
  engine->size_ = world->size;
  engine->world_ = std::move(world);
  engine->world_->tuning.Use(MergeTunings(engine->world_->peers, engine->world_->one_group()));
  Negotiation::Limits limits;
  limits.tuning = &engine->world_->tuning;
  if (settings.log_entries > 0) limits.log_entries = settings.log_entries;
  engine->operations_ = std::make_unique<Operations>(engine->world_->layout, engine->rank_,
                                                     engine->world_->group->control_memory(), limits);
  engine->operations_->recorder = std::move(recorder);
  engine->everybody_ = engine->operations_->negotiation.FindSet(0);
  FRD_RETURN_IF_ERROR(BackendList::Read(settings.backends, &engine->backend_list_, settings.without_network));
  engine->driver_ =
      std::make_unique<Driver>(engine->world_.get(), engine->operations_.get(), settings, engine->backend_list_);
  FRD_RETURN_IF_ERROR(engine->driver_->Start());
  *result = std::move(engine);
  return Status::Ok();
}

void Engine::Shutdown() {
  if (driver_) driver_->Leave();
  if (operations_ && operations_->recorder) operations_->recorder->RemoveIfAllHaveLeft();
}

// ---- submitting

// Refuses a wrong call before the operation has a sequence number or a ticket, so that this rank stays in step with the
// others. From Begin on the operation belongs to the negotiation.
Status Engine::Submit(Request request, OperationPtr* result, bool will_wait) {
  ProcessSetPtr found = FindSet(request.process_set);
  if (!found) return NoProcessSet(request.process_set, rank_);
  const ProcessSet* const set = found.get();
  if (const Status checked = Check(&request, *set); !checked.ok()) {
    if (ChangesSets(request.kind)) TellOfRefusal(checked.message(), request.site);
    return checked;
  }
  FRD_RETURN_IF_ERROR(PrescaleInputs(&request));
  if (request.ready == Ready::kAfterAll) FRD_RETURN_IF_ERROR(Mark(&request));
  *result = std::make_shared<Operation>(std::move(request));
  const OperationPtr& operation = *result;
  operation->admission.set = std::move(found);
  operation->submitted_ns = Timeline::Stamp();
  const bool alone = IsSolo(set->size());
  if (!alone) FRD_RETURN_IF_ERROR(ChooseBackend(backend_list_, *set, operation.get()));
  FRD_RETURN_IF_ERROR(FindDevice(operation.get()));
  operation->nvtx_range = Nvtx::Begin(*operation);
  if (alone) {
    solo_.Perform(operation);
    return Status::Ok();
  }
  const Status begun = Begin(operation, will_wait);
  if (!begun.ok()) operation->Abandon(begun);
  return begun;
}

// An unnamed operation waits for an operation in flight with the same name (Naming).
Status Engine::Begin(const OperationPtr& operation, bool will_wait) {
  if (operation->request.kind == OpKind::kJoin) return SubmitJoin(operation);
  operation->awaited = will_wait;
  OperationPtr before;
  if (operation->request.name.empty()) before = operations_->naming.Name(operation);
  if (before) return Defer(world_.get(), operations_.get(), operation, std::move(before));
  return Enter(world_.get(), operations_.get(), operation, will_wait);
}

// Comes before the operation takes its sequence number, so that a rank that goes on after a refusal stays in step.
Status Engine::Check(Request* request, const ProcessSet& set) const {
  FRD_RETURN_IF_ERROR(CheckRequest(request, set, size_));
  if (!operations_ || request->kind != OpKind::kRemoveProcessSet) return Status::Ok();
  const auto removed = static_cast<int>(request->ranks[0]);
  std::lock_guard<std::mutex> lock(operations_->mutex);
  for (const Deferred& waiting : operations_->deferred) {
    if (waiting.operation->set() == removed) return InUse(removed, waiting.operation->Title(), rank_);
  }
  return operations_->negotiation.CanRemove(removed);
}

// Returns -1 where this rank itself ended the epoch. The launcher asks for this before it reports which rank failed
// first.
int Engine::LostRank(std::string* reason) const {
  if (!operations_) return -1;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  if (!operations_->has_missed_lost || operations_->broken_by == rank_) return -1;
  *reason = operations_->broken.message();
  return operations_->broken_by;
}

// The others may have submitted the change already, and would wait for this rank until the deadline.
void Engine::TellOfRefusal(const std::string& why, const std::string& site) {
  if (!operations_) return;
  const int64_t sequence_number = operations_->naming.sequence_numbers()[0];
  const std::string text = (site.empty() ? "" : " (" + site + ")") + ": " + why;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    if (operations_->is_broken || operations_->join) return;
    operations_->negotiation.outbox().TellOfRefusal(sequence_number, text);
  }
  world_->group->RingSelf();
}

ProcessSetPtr Engine::FindSet(int id) {
  if (id == 0) return everybody_;
  if (!operations_) return solo_.FindSet(id);
  std::lock_guard<std::mutex> lock(operations_->mutex);
  return operations_->negotiation.FindSet(id);
}

Status Engine::Mark(Request* request) const {
  const Status marked = MarkReady(devices_, request);
  if (marked.ok()) return marked;
  return {marked.code(), Operation(*request).Title(), ": ", marked.message()};
}

// If the backend takes device memory, nothing is copied. Else the operation gets a copy on the host, and its task
// begins when that is filled.
Status Engine::FindDevice(Operation* operation) {
  const bool stays = BackendTable::TakesDeviceMemory(operation->backend);
  const Status found = stays ? FindDeviceOf(devices_, operation->request, &operation->device)
                             : MakeHostCopy(devices_, operation->request, rank_, &operation->host_copy);
  if (found.ok() && stays && AllocatesOutput(operation->request.kind) && operation->device == nullptr) {
    return Invalid(operation->Title(),
                   ": a tensor without elements needs an address on its device, too, since the result lies there");
  }
  if (!found.ok()) return {found.code(), operation->Title(), ": ", found.message()};
  if (operation->device != nullptr && AllocatesOutput(operation->request.kind)) {
    operation->results = results_.Of(operation->device);
  }
  return found;
}

// The driver tells rank 0, once everything that this rank has begun is done.
Status Engine::SubmitJoin(const OperationPtr& operation) {
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    if (operations_->is_broken)
      return {operations_->broken.code(), "join cannot start: ", operations_->broken.message()};
    if (operations_->join) return Invalid("rank ", rank_, " has joined already; wait for that to end");
    operations_->join = operation;
    operations_->wants_join = true;
    RecordJoin(operations_.get(), operation.get());
    operations_->in_flight.fetch_add(1);
  }
  world_->group->RingSelf();
  return Status::Ok();
}

// ---- waiting

// Other ranks see by themselves that all have put, so only threads of this process are woken.
bool Engine::Poll(const OperationPtr& operation) {
  if (operation->done()) return true;
  if (operation->deferred || !operation->admission.cells || !operations_->negotiation.IsReady(operation->admission))
    return false;
  if (!CompleteIfReady(world_.get(), operations_.get(), operation)) return operation->done();
  WakeForDeferred(world_.get(), *operations_);
  driver_->NotifyWaiters();
  return true;
}

bool Engine::Wait(const OperationPtr& operation, int64_t limit_ms) {
  return operation->done() || AwaitSmall(operation) || driver_->Wait(*operation, limit_ms);
}

// A timeline, a profiler and a list with other backends need an operation: then there is no short cut. The call lives
// on this stack until it is over or has become an operation.
bool Engine::Run(const RequestView& request, Status* status) {
  OperationPtr operation;
  if (!operations_ || !TryRun(request, 0, Driver::kYields, &operation)) return false;
  if (!status->ok()) *status = Status::Ok();  // to write it takes longer than to look
  if (!operation) return true;
  while (!driver_->Wait(*operation, kForGoodMs)) {
  }
  *status = operation->status();
  return true;
}

bool Engine::RunOrBegin(const RequestView& request, OperationPtr* operation) {
  return operations_ && TryRun(request, operations_->pauses, 0, operation);
}

// An unnamed call keeps its number to itself until it is over or an operation, so it does not yield.
bool Engine::TryRun(const RequestView& request, int pauses, int yields, OperationPtr* operation) {
  if (!SmallCall::CanBe(request)) return false;
  if (!backend_list_.only_ours() || Timeline::on() || Nvtx::on()) return false;
  if (request.name.empty()) {
    Naming::Turn turn(&operations_->naming, request);
    if (!turn.is_free()) return false;
    SmallCall call(request, turn.name(), turn.sequence_number());
    if (!RunSmall(&call, operations_->pauses, 0)) return false;
    turn.Take(*operation = call.became());
    return true;
  }
  SmallCall call(request, request.name);
  if (!RunSmall(&call, pauses, yields)) return false;
  *operation = call.became();
  return true;
}

// Enter has paused for the others already.
bool Engine::RunSmall(SmallCall* call, int pauses, int yields) {
  if (!Enter(world_.get(), operations_.get(), call)) return false;
  if (call->over()) return true;  // nearly always
  if (!LookUntil([&] { return CompleteIfReady(world_.get(), operations_.get(), call); }, pauses, yields)) {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    operations_->by_ticket.MakeOperation();
  }
  return true;
}

// A small operation needs no driver: its data arrive in shared memory.
template <typename Look>
bool Engine::LookUntil(Look look, int pauses, int yields) {
  for (int idle = 0; idle < pauses + yields; ++idle) {
    if (look()) return true;
    idle < pauses ? CpuPause() : std::this_thread::yield();
  }
  return look();
}

bool Engine::AwaitSmall(const OperationPtr& operation) {
  if (operation->deferred || !operation->admission.cells) return false;
  return LookUntil([&] { return Poll(operation); }, operations_->pauses, Driver::kYields);
}

}  // namespace farandole
