#include "engine/engine.h"

#include "common/log.h"
#include "execution/device_copies.h"
#include "operation/timeline.h"

namespace farandole {
namespace {

// Returns null if nothing is recorded, as in a world of one rank, which waits for nobody.
std::unique_ptr<FlightRecorder> BeginRecording(const WorldSpec& spec) {
  if (spec.recording_path.empty()) return nullptr;
  return FlightRecorder::Make({spec.rank, spec.size, spec.run, spec.recording_path, spec.epoch});
}

// See Messenger::Reason.
Status WhyLost(Operations* operations, int peer) {
  if (!operations->is_broken) return Status::Ok();
  std::lock_guard<std::mutex> lock(operations->mutex);
  const auto found = operations->lost.find(peer);
  if (found != operations->lost.end()) return found->second;
  return operations->is_over ? operations->broken : Status::Ok();
}

// Returns make(), or a short error if there is no memory for it.
template <typename Make>
Status OrOutOfMemory(Make make) noexcept {
  try {
    return make();
  } catch (const std::exception&) {
    return Internal("out of memory");
  }
}

}  // namespace

SegmentPlan Engine::PlanFor(int world_size) {
  return {NodeMemory::BytesFor(world_size), NativeStagingBytesPerMember(), kMaxChannels};
}

// Rank 0 compares what must be equal on all ranks: settings, the list of backends, their libraries and networks, which
// are sent with this rank's PeerInfo.
Status Engine::Start(WorldSpec spec, Settings settings, std::unique_ptr<Engine>* engine) {
  ConfigureLog(static_cast<LogLevel>(settings.log_level), spec.rank);
  BackendList backend_list;
  FRD_RETURN_IF_ERROR(BackendList::Read(settings.backends, &backend_list, settings.without_network));
  if (spec.size == 1) {
    // One rank needs no library, but reports the same errors in the list as several ranks would.
    FRD_RETURN_IF_ERROR(BackendTable::FindAll(settings, backend_list));
    engine->reset(new Engine(settings, true));
    (*engine)->everybody_ = (*engine)->single_rank_.FindSet(0);
    (*engine)->messenger_ = std::make_unique<Messenger>(nullptr, [](int) { return Status::Ok(); });
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
  return Start(std::move(world), settings, engine, BeginRecording(spec));
}

// Starts the driver last, since from then on it answers messages of other ranks.
Status Engine::Start(std::unique_ptr<World> world, const Settings& settings, std::unique_ptr<Engine>* result,
                     std::unique_ptr<FlightRecorder> recorder) {
  std::unique_ptr<Engine> engine(new Engine(settings, false));
  engine->rank_ = world->rank;
  engine->size_ = world->size;
  engine->world_ = std::move(world);
  Negotiation::Limits limits;
  if (settings.log_entries > 0) limits.log_entries = settings.log_entries;
  engine->operations_ = std::make_unique<Operations>(engine->world_.get(), limits);
  engine->operations_->recorder = std::move(recorder);
  engine->everybody_ = engine->operations_->negotiation.FindSet(0);
  FRD_RETURN_IF_ERROR(BackendList::Read(settings.backends, &engine->backend_list_, settings.without_network));
  engine->driver_ = std::make_unique<Driver>(engine->operations_.get(), settings, engine->backend_list_);
  FRD_RETURN_IF_ERROR(engine->driver_->Start());
  engine->messenger_ = std::make_unique<Messenger>(
      engine->world_.get(), [operations = engine->operations_.get()](int peer) { return WhyLost(operations, peer); });
  *result = std::move(engine);
  return Status::Ok();
}

void Engine::Shutdown() {
  if (operations_) operations_->diagnosis.Close();
  if (messenger_) messenger_->Shutdown();
  if (driver_) driver_->Leave();
}

// ---- submitting

// Refuses a wrong call before the operation has a sequence number or a ticket. Afterwards the operation belongs to the
// negotiation. A refusal takes a sequence number, so nothing may throw between it and the return: errors are moved.
Status Engine::Submit(const RequestView& view, OperationPtr* result, bool will_wait) {
  result->reset();
  try {
    Request request(view);
    ProcessSetPtr set = FindSet(request.process_set);
    if (!set) return NoProcessSet(request.process_set, rank_);
    const bool alone = IsSingleRank(set->size());
    if (Status status = Prepare(&request, std::move(set), result); !status.ok()) {
      Refuse(view.process_set, view.name, view.site, status.message());
      result->reset();
      return status;
    }
    const OperationPtr& operation = *result;
    operation->nvtx_range = Nvtx::Begin(*operation);
    if (alone) {
      single_rank_.Perform(operation);
      return Status::Ok();
    }
    operation->awaited = will_wait;
    const bool joins = operation->request.kind == OpKind::kJoin;
    Status begun = joins ? operations_->Join(operation) : operations_->Enter(operation, will_wait);
    if (!begun.ok()) operation->CompleteAlone(OrOutOfMemory([&] { return begun; }), /*announced=*/false);
    return begun;
  } catch (const std::exception& thrown) {
    return AfterException(CauseOf(thrown), view, *result);
  }
}

// Does everything that may fail on this rank alone. Moves the request into the operation.
Status Engine::Prepare(Request* request, ProcessSetPtr found, OperationPtr* result) {
  const ProcessSet& set = *found;
  FRD_RETURN_IF_ERROR(CheckRequest(request, set, size_));
  FRD_RETURN_IF_ERROR(PrescaleInputs(request));
  if (request->ready == Ready::kAfterAll) FRD_RETURN_IF_ERROR(Mark(request));
  *result = std::make_shared<Operation>(std::move(*request));
  Operation* const operation = result->get();
  operation->admission.set = std::move(found);
  operation->submitted_ns = Timeline::Timestamp();
  if (!IsSingleRank(set.size())) FRD_RETURN_IF_ERROR(ChooseBackend(backend_list_, set, operation));
  return FindDevice(operation);
}

// The launcher asks for this to find the rank that failed first, so a rank that ended the epoch itself returns -1.
int Engine::LostRank(std::string* reason) const {
  if (!operations_) return -1;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  if (!operations_->needed_lost_rank || operations_->broken_by == rank_) return -1;
  *reason = operations_->broken.message();
  return operations_->broken_by;
}

int Engine::LateRank(bool* waits_too) const {
  if (!operations_) return -1;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  *waits_too = operations_->broken.code() == Code::kDeadlock;
  return *waits_too || operations_->broken.code() == Code::kDeadline ? operations_->broken_by : -1;
}

// Before Operations::Begin no other thread knows the operation, so the call is refused like a wrong one, except for a
// join, in which ranks do not meet. After it the other ranks rely on this one, so the epoch ends. That also ends the
// operation, so this returns OK: for the caller it has begun.
Status Engine::AfterException(const char* cause, const RequestView& call, const OperationPtr& operation) noexcept {
  const bool has_begun = operation && operation->state() != Operation::State::kMade;
  if (has_begun) {
    EndEpoch(cause);
    return Status::Ok();
  }
  Status status = OrOutOfMemory([&] {
    return Internal(NameOf(call.kind), call.name.empty() ? "" : Text(" '", std::string(call.name), "'"),
                    " cannot start on rank ", rank_, ": ", cause);
  });
  if (call.kind == OpKind::kJoin) {
    EndEpoch(cause);
  } else {
    Refuse(call.process_set, call.name, call.site, status.message());
  }
  if (operation) operation->CompleteAlone(OrOutOfMemory([&] { return status; }), /*announced=*/false);
  return status;
}

void Engine::EndEpoch(const char* cause) {
  if (!operations_) return;
  operations_->thrown = cause;
  world_->node->RingSelf();
}

void Engine::Refuse(int set, std::string_view name, std::string_view site, const std::string& why) noexcept {
  try {
    RefuseOrThrow(set, name, site, why);
  } catch (const std::exception& thrown) {
    EndEpoch(CauseOf(thrown));  // the others would wait for this rank
  }
}

void Engine::RefuseOrThrow(int set, std::string_view name, std::string_view site, const std::string& why) {
  const ProcessSetPtr found = operations_ ? FindSet(set) : nullptr;
  if (!found || IsSingleRank(found->size())) return;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    operations_->Refuse(set, std::string(name), std::string(site), why);
  }
  world_->node->RingSelf();
}

// Numbers are unique in the process, since Allow may be called on an engine that has replaced this one.
int64_t Engine::Exclude(ExcludedCalls calls) {
  static std::atomic<int64_t> latest{0};
  const int64_t number = ++latest;
  if (!operations_) return number;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->excluded[number] = std::move(calls);
  return number;
}

void Engine::Allow(int64_t number) {
  if (!operations_) return;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->excluded.erase(number);
}

// A joined rank takes part in every operation without its program, so no rank waits for it for ever.
std::optional<Engine::BlockedSnapshot> Engine::SnapshotBlocked() const {
  if (!operations_ || operations_->has_native_callers || operations_->has_deferred) return std::nullopt;
  BlockedSnapshot waits;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    waits.entered = operations_->entered;
  }
  waits.threads = operations_->blocked.operations();
  for (const auto& [thread, operation] : waits.threads) {
    if (ConcernsWholeWorld(operation->request.kind)) return std::nullopt;
  }
  return waits;
}

void Engine::LimitWaits(int process_set, int64_t limit_ms) {
  if (!operations_) return;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    operations_->wait_limits_ms[process_set] = limit_ms;
  }
  if (limit_ms > 0) ExpectLimit(limit_ms);
}

int64_t Engine::WaitLimitOf(int process_set) const {
  if (!operations_) return 0;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  const auto found = operations_->wait_limits_ms.find(process_set);
  return found == operations_->wait_limits_ms.end() ? 0 : found->second;
}

void Engine::ExpectLimit(int64_t limit_ms) {
  if (!operations_) return;
  std::atomic<int64_t>& shortest = operations_->shortest_limit_ms;
  for (int64_t before = shortest.load(); before > limit_ms && !shortest.compare_exchange_weak(before, limit_ms);) {
  }
}

Status Engine::Overdue(const OperationPtr& operation, int64_t waited_ms) {
  std::string missing;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    missing = operation->missing;
  }
  return {Code::kDeadline,
          operation->Call(),
          " has waited ",
          waited_ms,
          " ms on rank ",
          rank_,
          " for ",
          missing.empty() ? "other ranks" : missing,
          ", and the timeout of this wait is over"};
}

ProcessSetPtr Engine::FindSet(int id) {
  if (id == 0) return everybody_;
  if (!operations_) return single_rank_.FindSet(id);
  std::lock_guard<std::mutex> lock(operations_->mutex);
  return operations_->negotiation.FindSet(id);
}

Status Engine::Mark(Request* request) const {
  const Status marked = MarkReady(devices_, request);
  if (marked.ok()) return marked;
  return {marked.code(), Operation(*request).Title(), ": ", marked.message()};
}

// If the backend takes device memory, nothing is copied. Otherwise the operation gets a copy on the host, and its task
// begins once that is filled.
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

// ---- waiting

// A rank outside of the set has no such message.
Status Engine::FindMembers(Transfer* transfer) {
  const ProcessSetPtr set = FindSet(transfer->key.context);
  if (!set) return NoProcessSet(transfer->key.context, rank_);
  const bool is_any = transfer->peer == kAnySource && !transfer->sends;
  for (const int rank : {rank_, is_any ? rank_ : transfer->peer}) {
    if (set->PositionOf(rank) < 0)
      return Invalid(transfer->Title(), ": rank ", rank, " is not in process set ", set->id);
  }
  transfer->members = {set, &set->ranks};
  return Status::Ok();
}

Status Engine::Begin(const TransferPtr& transfer) noexcept {
  try {
    FRD_RETURN_IF_ERROR(FindMembers(transfer.get()));
    return messenger_->Submit(transfer);
  } catch (const std::exception& thrown) {
    messenger_->Cancel(transfer, Internal("out of memory"));
    return OrOutOfMemory(
        [&] { return Internal(transfer->Title(), " cannot start on rank ", rank_, ": ", CauseOf(thrown)); });
  }
}

bool Engine::Poll(const TransferPtr& transfer) {
  if (!messenger_->Poll(transfer)) return false;
  NoteEnd(*transfer);
  return true;
}

bool Engine::Wait(const TransferPtr& transfer, int64_t limit_ms) {
  if (!transfer->done && !messenger_->Wait(transfer, limit_ms)) return false;
  NoteEnd(*transfer);
  return true;
}

// A rank that fails because another is lost is not blamed for it.
void Engine::NoteEnd(const Transfer& transfer) {
  if (!operations_ || transfer.status.code() != Code::kPeerLost) return;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  if (operations_->is_broken) operations_->RecordLostRank();
}

void Engine::GiveUp(const TransferPtr& transfer) {
  if (transfer->done) return;
  std::string who = world_ ? "" : "this rank";
  if (who.empty()) who = transfer->peer == kAnySource ? "no rank" : world_->NameOf(transfer->peer);
  const std::string what = transfer->sends ? " received it in time" : " sent it in time";
  messenger_->Cancel(transfer, {Code::kDeadline, transfer->Title(), " failed on rank ", rank_, ": ", who,
                                transfer->peer == kAnySource ? "" : " has not", what});
}

// A caller may only poll, and so never come to where a waiting thread rings for missing shares.
bool Engine::Poll(const OperationPtr& operation) {
  constexpr uint32_t kPollsBeforeDoorbells = 16;
  if (operation->done() || operations_->Poll(operation)) return true;
  const bool is_small = !operation->deferred() && operation->admission.slots;
  if (is_small && ++operation->failed_polls % kPollsBeforeDoorbells == 0) operations_->RequestDoorbells();
  return false;
}

bool Engine::Wait(const OperationPtr& operation, int64_t limit_ms) {
  return operation->done() || driver_->Wait(operation, limit_ms);
}

// A timeline, a profiler and other backends need the whole request.
bool Engine::RunOrBegin(const RequestView& request, OperationPtr* operation) {
  if (!operations_ || !Operation::CanBorrow(request)) return false;
  if (!backend_list_.only_ours() || Timeline::on() || Nvtx::on()) return false;
  try {
    if (!operations_->EnterBorrowed(request, operation)) return false;
  } catch (const std::exception& thrown) {
    if (!*operation) return false;
    const char* const cause = CauseOf(thrown);
    EndEpoch(cause);
    const auto failure = [&] { return Internal("an allreduce failed on rank ", rank_, ": ", cause); };
    (*operation)->CompleteAlone(OrOutOfMemory(failure), /*announced=*/false);
    return true;
  }
  if (!*operation) return true;  // nearly always
  Waiter waiter = Waiter::OfCallerWithGil(operations_->pauses);
  if (waiter.Until([&] { return operations_->Poll(*operation); }) && (*operation)->status().ok()) operation->reset();
  return true;
}

}  // namespace farandole
