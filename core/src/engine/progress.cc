#include "engine/progress.h"

#include <algorithm>

#include "engine/operations.h"
#include "engine/small.h"

namespace farandole {
namespace {

// Sockets are asked with a system call, so not in every pass: often where data or messages come over them.
constexpr unsigned kOften = 8, kSometimes = 32, kSeldom = 256;
constexpr int64_t kTickMs = 20;

// Eager operations wait for no message.
unsigned DescriptorInterval(const World& world, const Operations& operations, const Eager& eager) {
  if (world.one_group()) return kSeldom;
  return eager.asks() && operations.in_flight == eager.count() ? kSometimes : kOften;
}

Aborted ToWire(const EpochEnd& end) {
  return {static_cast<int32_t>(end.status.code()), end.culprit, end.status.message()};
}

// Null when the operation was given up meanwhile.
OperationPtr TakeOperation(Operations* operations, Ticket ticket) {
  std::lock_guard<std::mutex> lock(operations->mutex);
  return operations->by_ticket.Take(ticket);
}

// Tells rank 0 that this rank joins, once everything that it had begun is done. True when that was told.
bool TellOfJoin(Operations* operations) {
  const SequenceNumbers sequence_numbers = operations->naming.sequence_numbers();
  std::lock_guard<std::mutex> lock(operations->mutex);
  if (!operations->by_ticket.empty() || operations->has_deferred || operations->negotiation.AwaitsRelease())
    return false;
  operations->wants_join = false;
  operations->negotiation.Join(sequence_numbers);
  operations->has_outgoing = true;
  return true;
}

// This rank has joined, and takes part in an operation of the others. An invitation to what the negotiation has entered
// already needs a place in Operations only.
Status TakePart(World* world, Operations* operations, const Negotiation::Event& event) {
  auto operation = std::make_shared<Operation>(Invitation(event.description));
  operation->SetName(event.description.name, event.description.sequence_number);
  operation->invited = true;
  operation->backend = event.description.signature.backend;
  if (event.items.empty()) {
    const Status entered = Enter(world, operations, operation, false);
    return entered.ok() || operations->is_broken ? Status::Ok() : Internal(entered.message());
  }
  std::lock_guard<std::mutex> lock(operations->mutex);
  operation->admission.ticket = event.items[0].ticket;
  operation->admission.set = operations->negotiation.FindSet(event.description.signature.set);
  operations->by_ticket.Put(operation);
  operations->in_flight.fetch_add(1);
  return Status::Ok();
}

}  // namespace

ProgressLoop::ProgressLoop(World* world, Operations* operations, ProgressLock* progress_lock, const Settings& settings,
                           const BackendList& backend_list)
    : world_(world),
      operations_(operations),
      progress_lock_(progress_lock),
      control_(world),
      work_(world, settings, backend_list),
      eager_(world, operations, control_.poller()),
      failures_(world, operations),
      stalls_(world, operations, control_.coordinator(), settings) {}

Status ProgressLoop::Open() {
  FRD_RETURN_IF_ERROR(control_.Open());
  FRD_RETURN_IF_ERROR(eager_.Open());
  return work_.Open();
}

// What costs nothing to look at comes in every pass, descriptors in some. Data come before the signs of ends, and signs
// before the log: what a rank did before it ended is done first.
bool ProgressLoop::Drive() {
  bool moved = AdvanceEager();
  if (passes_++ % DescriptorInterval(*world_, *operations_, eager_) == 0) {
    moved |= control_.Look();
    ActOnSigns();
    Tick();
  }
  std::vector<WorkQueue::Ended> ended;
  moved |= work_.PollCopies(&ended);
  FinishAll(ended);
  if (CheckAbortWord() || failures_.holds_sure_end()) return moved;
  if (CompleteReady(world_, operations_)) {
    progress_lock_->NotifyWaiters();
    moved = true;
  }
  moved |= EnterDeferred();
  moved |= operations_->wants_join && work_.empty() && TellOfJoin(operations_);
  moved |= ReadLog();
  moved |= RunTasks();
  moved |= SendOutgoing();
  work_.NoteLongestSleep();
  return moved;
}

void ProgressLoop::Sleep(int timeout_ms) const {
  const int longest_ms = work_.longest_sleep_ms();
  control_.Sleep(longest_ms < 0 ? timeout_ms : std::min(timeout_ms, longest_ms));
}

// ---- the negotiation's events

// Events are handled without the lock of Operations, since an operation that ends may submit the next one.
bool ProgressLoop::ReadLog() {
  std::vector<Negotiation::Event> events;
  bool moved = false;
  bool ring = false;
  {
    if (!operations_->negotiation.HasNews()) return false;
    std::lock_guard<std::mutex> lock(operations_->mutex);
    moved = operations_->negotiation.Advance(&events);
    ring = operations_->negotiation.outbox().TakeRing();
    if (!operations_->negotiation.outbox().empty()) operations_->has_outgoing = true;
  }
  if (ring) world_->group->RingOthers();
  for (const Negotiation::Event& event : events) Handle(event);
  return moved;
}

// A message of the coordinator to this rank.
void ProgressLoop::Obey(const Bytes& message) {
  std::vector<Negotiation::Event> events;
  Status status;
  bool ring = false;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    status = operations_->negotiation.OnMessage(message, &events);
    ring = operations_->negotiation.outbox().TakeRing();
  }
  if (ring) world_->group->RingOthers();
  for (const Negotiation::Event& event : events) Handle(event);
  if (!status.ok()) Abort({status, kCoordinatorRank});
}

// What a kind of event asks for stands in controller/admission.h.
void ProgressLoop::Handle(const Negotiation::Event& event) {
  switch (event.kind) {
    case Negotiation::Event::kBatch:
      return StartBatch(event);
    case Negotiation::Event::kTake:
      CompleteSmall(world_, operations_, event.items[0].ticket);
      return progress_lock_->NotifyWaiters();
    case Negotiation::Event::kFailed:
      if (const OperationPtr operation = TakeOperation(operations_, event.items[0].ticket))
        Finish(operation, event.status);
      return;
    case Negotiation::Event::kRecalled:
      return eager_.Recall(event.items[0].ticket);
    case Negotiation::Event::kWithdrawn:
      eager_.Recall(event.items[0].ticket);
      if (TakeOperation(operations_, event.items[0].ticket)) operations_->in_flight.fetch_sub(1);
      return;
    case Negotiation::Event::kInvited:
      stalls_.OnInvited();
      if (const Status taken = TakePart(world_, operations_, event); !taken.ok()) Abort({taken, world_->rank});
      return;
    case Negotiation::Event::kJoinEnd:
      return OnJoinEnd(event);
    case Negotiation::Event::kAbsent:
    case Negotiation::Event::kAsked:
    case Negotiation::Event::kAnswered:
    case Negotiation::Event::kRefused:
      return stalls_.On(event);
    case Negotiation::Event::kLeft:
      return OnLeft(event.rank);
    case Negotiation::Event::kAbort:
      return Abort({event.status, event.rank});
  }
}

// An operation that was given up meanwhile, after Break, is not in flight any more and is left out.
void ProgressLoop::StartBatch(const Negotiation::Event& event) {
  std::vector<ReadyOperation> batch;
  for (const Negotiation::Item& item : event.items) {
    OperationPtr operation = TakeOperation(operations_, item.ticket);
    if (!operation) continue;
    if (FinishWithoutTask(operation, item)) continue;
    batch.push_back({std::move(operation), item.counts});
  }
  const Status planned = work_.Add(batch);
  if (planned.ok()) return;
  const EpochEnd here = EndBecauseOf(*world_, planned);
  Abort(here);
  End(here);  // at once, since nobody may touch the memory of these operations any more; the first reason counts
  for (const ReadyOperation& ready : batch) Finish(ready.operation, here.status);
}

// Operations without tensors are complete once every rank has arrived.
bool ProgressLoop::FinishWithoutTask(const OperationPtr& operation, const Negotiation::Item& item) {
  const Request& request = operation->request;
  if (CarriesTensors(request.kind)) return false;
  if (item.new_set >= 0) operation->outputs = {NumbersOutput({item.new_set}, true)};
  if (request.kind == OpKind::kRemoveProcessSet) {
    work_.Forget(static_cast<int>(request.ranks[0]));
    operations_->naming.Forget(static_cast<int>(request.ranks[0]));
  }
  Finish(operation, Status::Ok());
  return true;
}

// All ranks have joined and go on together, so they count unnamed operations alike from here on.
void ProgressLoop::OnJoinEnd(const Negotiation::Event& event) {
  operations_->naming.CatchUp(event.sequence_numbers);
  OperationPtr join;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    join = std::move(operations_->join);
  }
  if (!join) return;
  join->outputs = {NumbersOutput({event.rank}, true)};
  Finish(join, Status::Ok());
}

void ProgressLoop::OnLeft(int rank) {
  if (rank == world_->rank) return;
  const EpochEnd left = failures_.OnLeft(rank);
  // Its data came before the word that it leaves: small operations that it took part in are not broken.
  if (CompleteReady(world_, operations_)) progress_lock_->NotifyWaiters();
  failures_.Break(left);
}

// ---- what owners return

// Operations end before the signs are weighed: data that have come are not lost with the connection.
bool ProgressLoop::AdvanceEager() {
  std::vector<OperationPtr> done;
  std::vector<Eager::Sign> signs;
  const bool moved = eager_.Advance(&done, &signs);
  for (const OperationPtr& operation : done) Finish(operation, Status::Ok());
  for (const Eager::Sign& sign : signs) {
    if (sign.kind == Eager::Sign::kFarewell) failures_.OnFarewell(sign.rank);
    if (sign.kind == Eager::Sign::kClosed) failures_.OnPutsClosed(sign.rank);
    if (sign.kind == Eager::Sign::kBroken) Abort({sign.status, sign.rank});
  }
  return moved;
}

// Last words come first: a rank that left in good order said so before its connection and its process ended. Ends of
// processes are judged together, since one may have ended because of the other.
void ProgressLoop::ActOnSigns() {
  while (control_.has_signs()) {
    const ControlPlane::Signs signs = control_.TakeSigns();
    for (const Bytes& message : signs.messages) Obey(message);
    for (const EpochEnd& end : signs.ends) Abort(end);
    for (int rank : signs.puts) eager_.OnReadable(rank);
    for (int rank : signs.closed) failures_.OnControlClosed(rank);
    for (int rank : signs.gone) failures_.OnProcessEnded(rank);
    if (!signs.gone.empty()) Judge(Now());
  }
}

// A back end may fail because another rank is gone. Then the ended connections, or those that will have ended soon, say
// which rank that is, and the verdict on it ends the epoch.
bool ProgressLoop::RunTasks() {
  bool moved = false;
  for (bool finished = !work_.empty(); finished;) {
    std::vector<WorkQueue::Ended> ended;
    const WorkQueue::Outcome outcome = work_.Run(&ended);
    moved |= outcome.moved;
    finished = outcome.finished;
    FinishAll(ended);
    const bool is_anothers = outcome.may_be_a_link && failures_.SuspectBrokenLinks();
    if (outcome.end && !is_anothers) Abort(*outcome.end);
  }
  return moved;
}

// Unnamed operations whose name is free now.
bool ProgressLoop::EnterDeferred() {
  if (!operations_->has_deferred) return false;
  const std::vector<OperationPtr> operations = TakeDeferred(operations_);
  for (const OperationPtr& operation : operations) {
    const Status entered = Enter(world_, operations_, operation, false);
    operation->deferred = false;
    if (!entered.ok()) {
      Finish(operation, entered);
    } else {
      operations_->in_flight.fetch_sub(1);  // it was counted when it was deferred, and again now
    }
  }
  return !operations.empty();
}

// Comes last in a pass, so that whatever the pass has caused goes out with it.
bool ProgressLoop::SendOutgoing() {
  if (!operations_->has_outgoing.exchange(false)) return false;
  std::vector<Bytes> messages;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    messages = operations_->negotiation.outbox().Take();
  }
  operations_->messages_sent.fetch_add(messages.size());
  control_.ToCoordinator(messages);
  ActOnSigns();  // on rank 0 the coordinator has answered
  return !messages.empty();
}

// What needs a clock: verdicts, and waits that take long.
void ProgressLoop::Tick() {
  const TimePoint now = Now();
  if (MillisecondsBetween(last_tick_, now) < kTickMs) return;
  last_tick_ = now;
  Judge(now);
  EndIfOverdue(now);
  // Everything that a rank that left took part in stands before that in the log, so what is still waiting waits in
  // vain; but for a mismatch, which is told by message and may come a little later.
  if (failures_.WaitingIsVain(now)) FailAll(operations_->broken, false);
  std::vector<Wait> under_way;
  work_.AddStandstill(now, &under_way);
  if (const std::optional<EpochEnd> end = stalls_.Check(now, std::move(under_way))) Abort(*end);
}

void ProgressLoop::Judge(TimePoint now) {
  if (!failures_.suspects_somebody()) return;
  ReadLog();  // a rank may have said that it leaves
  if (const std::optional<EpochEnd> end = failures_.Judge(now)) Abort(*end);
}

// ---- the end of operations

// The one place where the loop completes an operation. Whoever sleeps for it is woken.
void ProgressLoop::Finish(const OperationPtr& operation, Status status) {
  if (operation->done()) return;
  operations_->in_flight.fetch_sub(1);
  operation->Complete(std::move(status));
  progress_lock_->NotifyWaiters();
}

void ProgressLoop::FinishAll(const std::vector<WorkQueue::Ended>& ended) {
  for (const auto& [operation, status] : ended) Finish(operation, status);
}

// Completes what waits with an error, but for eager operations that can still be complete; with tasks_too everything,
// what is under way, too.
void ProgressLoop::FailAll(const Status& reason, bool tasks_too) {
  std::vector<OperationPtr> failed = failures_.TakeWaiting(tasks_too ? nullptr : &eager_);
  for (const OperationPtr& operation : failed) eager_.Recall(operation->admission.ticket);
  if (tasks_too) {
    std::vector<WorkQueue::Ended> ended;
    const std::vector<OperationPtr> cancelled = work_.Cancel(&ended);
    FinishAll(ended);
    failed.insert(failed.end(), cancelled.begin(), cancelled.end());
    eager_.Drop();
  }
  if (!failed.empty() && reason.code() == Code::kPeerLost) failures_.NoteMissedLost();
  for (const OperationPtr& operation : failed) Finish(operation, failures_.FailureOf(*operation, reason));
}

// ---- the end of the epoch

// An epoch that has ended (operations are refused, and none is under way) has its reason, and no other is told.
// One that only refuses goes on, since a rank has left in good order: what is under way may still need the rank that is
// lost now.
void ProgressLoop::Abort(const EpochEnd& end) {
  if (operations_->is_broken && idle()) return;
  if (!failures_.IsForRankZeroToSay(end)) return TellAll(end);
  control_.ToCoordinator({Encode(ToWire(end))});
  failures_.Hold(end, Now());
}

// The group hears by the abort word, the others from the coordinator.
void ProgressLoop::TellAll(const EpochEnd& end) {
  if (failures_.holds_sure_end() || !failures_.TellGroup(end)) return;
  control_.ToCoordinator({Encode(ToWire(end))});
  if (!CheckAbortWord()) failures_.Hold(end, Now());  // another member is writing the word, or has died of that
}

// Rank 0 was to say which rank is lost, or another member to finish the abort word, and has not: this rank goes by what
// it knows.
void ProgressLoop::EndIfOverdue(TimePoint now) {
  const std::optional<EpochEnd> own = failures_.TakeOverdue(now);
  if (!own) return;
  failures_.TellGroup(*own);
  if (!CheckAbortWord()) End(*own);
}

bool ProgressLoop::CheckAbortWord() {
  if (!failures_.is_told()) return false;
  if (!operations_->is_broken || !idle()) {
    const EpochEnd told = failures_.Told();
    End(told);
    // The member that noticed told the coordinator, unless it is the one that is gone.
    if (world_->rank == kCoordinatorRank && !world_->one_group()) control_.ToCoordinator({Encode(ToWire(told))});
  }
  return true;
}

void ProgressLoop::End(const EpochEnd& end) {
  failures_.Break(end);
  FailAll(end.status, true);
}

// This rank's last words. Whoever reads them knows that it left, and does not take the end of its connections for a
// death. REQUIRES: the loop thread has ended, so nobody else drives.
void ProgressLoop::Leave() {
  std::vector<WorkQueue::Ended> ended;
  work_.AwaitCopies(&ended);
  FinishAll(ended);
  EndIfOverdue(TimePoint::max());  // an end that waits is the reason to tell
  const int pending = operations_->in_flight;
  if (pending > 0) {
    // The others may still begin what this rank has come to, and would wait for it.
    TellAll(failures_.OfShutdown(pending));
    EndIfOverdue(TimePoint::max());
  } else if (!failures_.is_told()) {
    // Whoever ends because another has left says so, too, so that nobody takes it for dead.
    {
      std::lock_guard<std::mutex> lock(operations_->mutex);
      operations_->negotiation.Leave();
      operations_->has_outgoing = true;
    }
    world_->group->RingOthers();
    SendOutgoing();
    eager_.SayFarewell();
  }
  End({{Code::kNotInitialized, "this rank called shutdown"}, -1});
}

void ProgressLoop::GiveUp(const Status& reason) {
  Abort(EndBecauseOf(*world_, reason));
  Close();
}

// Each kind of connection ends its own direction before any waits for the other end.
void ProgressLoop::Close() {
  for (auto& link : world_->links) link.reset();
  eager_.EndSending();
  control_.Close();
  eager_.Close();
  work_.CloseBackends();
}

}  // namespace farandole
