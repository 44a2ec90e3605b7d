#include "engine/progress.h"

#include <algorithm>

namespace farandole {
namespace {

// A look at sockets takes a system call, so it does not come in every pass: often where data or messages come over
// them.
constexpr unsigned kOften = 8, kSometimes = 32, kSeldom = 256;
constexpr int64_t kTickMs = 20;
constexpr int64_t kLinksMs = 500;

// Eager operations wait for no message.
unsigned DescriptorInterval(const World& world, const Operations& operations, const Eager& eager) {
  if (world.one_group()) return kSeldom;
  return eager.asks() && operations.in_flight == eager.count() ? kSometimes : kOften;
}

Aborted ToWire(const EpochEnd& end) {
  return {static_cast<int32_t>(end.status.code()), end.culprit, end.status.message()};
}

// Returns null when the operation was given up meanwhile.
OperationPtr TakeOperation(Operations* operations, Ticket ticket) {
  std::lock_guard<std::mutex> lock(operations->mutex);
  return operations->by_ticket.Take(ticket);
}

// Tells rank 0 that this rank joins, once everything that it had begun is done. Returns whether it did.
bool TellOfJoin(Operations* operations) {
  const SequenceNumbers sequence_numbers = operations->naming.sequence_numbers();
  std::lock_guard<std::mutex> lock(operations->mutex);
  if (!operations->by_ticket.empty() || operations->has_deferred || operations->negotiation.AwaitsRelease())
    return false;
  operations->wants_join = false;
  operations->negotiation.Join(sequence_numbers);
  return true;
}

// This rank has joined, and takes part in an operation of the others. If the negotiation has entered the operation
// already, it only needs a place in Operations.
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

std::vector<LinkFacts> LinksOf(const Transport& transport) {
  std::vector<LinkFacts> links;
  transport.AppendLinkFacts(&links);
  return links;
}

}  // namespace

ProgressLoop::ProgressLoop(World* world, Operations* operations, ProgressLock* progress_lock, const Settings& settings,
                           const BackendList& backend_list)
    : world_(world),
      operations_(operations),
      progress_lock_(progress_lock),
      control_(world),
      work_(world, settings, backend_list),
      eager_(world, operations),
      failures_(world, operations),
      stalls_(world, operations, control_.coordinator(), settings) {}

Status ProgressLoop::Open() {
  FRD_RETURN_IF_ERROR(control_.Open());
  return work_.Open();
}

// Looks in every pass at what is cheap, and at descriptors in some. Data come before signs of ends, and signs before
// the log: what a rank did before it ended is handled first.
bool ProgressLoop::Drive() {
  bool moved = AdvanceEager();
  if (passes_++ % DescriptorInterval(*world_, *operations_, eager_) == 0) {
    moved |= control_.Look();
    ActOnSigns();
    Tick();
  }
  if (!withheld_.empty()) FinishWithheld();
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
  }
  if (ring) world_->group->RingOthers();
  for (const Negotiation::Event& event : events) Handle(event);
  return moved;
}

// Handles a message of the coordinator to this rank.
void ProgressLoop::OnMessage(const Bytes& message) {
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

// controller/admission.h says what each kind of event asks for.
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
    case Negotiation::Event::kNamesDiffer:
      return operations_->naming.Widen(event.description.signature);
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
  End(here);  // at once, since nothing may touch the memory of these operations any more; the first reason counts
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

// All ranks have joined and go on together, so their counts of unnamed operations are equal from here on.
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
  eager_.SayFarewell(rank);
  // Its data came before the message that it leaves, so small operations that it took part in can complete.
  if (CompleteReady(world_, operations_)) progress_lock_->NotifyWaiters();
  failures_.Break(left);
}

// ---- what owners return

// Ends operations before it acts on signs, so that data that have arrived are not lost with the connection.
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

// Messages come first: a rank that left in good order said so before its connection and its process ended. Ends of
// processes are judged together, since one may have ended because of the other.
void ProgressLoop::ActOnSigns() {
  while (control_.has_signs()) {
    const ControlPlane::Signs signs = control_.TakeSigns();
    for (const Bytes& message : signs.messages) OnMessage(message);
    for (const EpochEnd& end : signs.ends) Abort(end);
    for (int rank : signs.closed) failures_.OnControlClosed(rank);
    for (int rank : signs.gone) failures_.OnProcessEnded(rank);
    if (!signs.gone.empty()) Judge(Now());
  }
}

// A backend may fail because another rank is gone. Then connections that have ended, or soon will, tell which rank that
// is, and the verdict on it ends the epoch.
bool ProgressLoop::RunTasks() {
  bool moved = false;
  for (bool finished = !work_.empty(); finished;) {
    std::vector<WorkQueue::Ended> ended;
    const WorkQueue::Outcome outcome = work_.Run(&ended);
    moved |= outcome.moved;
    finished = outcome.finished;
    FinishAll(ended);
    const bool is_anothers = outcome.may_be_a_link && failures_.SuspectBroken();
    if (outcome.end && !is_anothers) Abort(*outcome.end);
  }
  return moved;
}

// Enters unnamed operations whose name is free now.
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

// Comes last in a pass, and so sends everything that the pass has caused.
bool ProgressLoop::SendOutgoing() {
  if (operations_->negotiation.outbox().empty()) return false;
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

// Does what needs a clock: verdicts, and long waits.
void ProgressLoop::Tick() {
  const TimePoint now = Now();
  if (MillisecondsBetween(last_tick_, now) < kTickMs) return;
  last_tick_ = now;
  if (operations_->recorder) operations_->recorder->NoteTime();
  if (operations_->recorder && MillisecondsBetween(last_links_, now) >= kLinksMs) {
    last_links_ = now;
    operations_->recorder->NoteLinks(LinksOf(*world_->transport));
  }
  Judge(now);
  EndIfOverdue(now);
  // The log has everything that a rank took part in before it has that the rank left. So operations that still wait
  // will never complete, except for a mismatch: a message tells of that, and may come a little later.
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

// The one place where the loop completes an operation. It wakes the threads that wait.
void ProgressLoop::Finish(const OperationPtr& operation, Status status) {
  if (operation->done()) return;
  operations_->in_flight.fetch_sub(1);
  operation->Complete(std::move(status));
  progress_lock_->NotifyWaiters();
}

void ProgressLoop::FinishAll(const std::vector<WorkQueue::Ended>& ended) {
  for (const auto& [operation, status] : ended) Finish(operation, status);
}

// Fails all waiting operations, except eager ones that can still be completed. At the end of the epoch also those under
// way; they are withheld, since posts may still touch their memory.
void ProgressLoop::FailAll(const Status& reason, bool at_end) {
  std::vector<OperationPtr> failed = failures_.TakeWaiting(at_end ? nullptr : &eager_);
  for (const OperationPtr& operation : failed) eager_.Recall(operation->admission.ticket);
  if (at_end) {
    std::vector<WorkQueue::Ended> ended;
    const std::vector<OperationPtr> cancelled = work_.Cancel(&ended);
    FinishAll(ended);
    failed.insert(failed.end(), cancelled.begin(), cancelled.end());
    eager_.Drop();
  }
  if (!failed.empty() && reason.code() == Code::kPeerLost) failures_.NoteMissedLost();
  for (const OperationPtr& operation : failed) {
    const Status status = failures_.FailureOf(*operation, reason);
    at_end ? withheld_.push_back({operation, status}) : Finish(operation, status);
  }
}

void ProgressLoop::FinishWithheld() {
  std::vector<Transport::Completion> none;
  if (!world_->transport->is_quiet()) world_->transport->Poll(&none);
  if (world_->transport->is_quiet()) FinishAll(std::exchange(withheld_, {}));
}

// ---- the end of the epoch

// An epoch that has ended (operations are refused, and none is under way) has its reason, and no other one is sent. One
// that only refuses goes on, since a rank has left in good order: what is under way may still need the rank that is
// lost now.
void ProgressLoop::Abort(const EpochEnd& end) {
  if (operations_->is_broken && work_.empty() && eager_.idle()) return;
  if (!failures_.IsForRankZeroToSay(end)) return TellAll(end);
  control_.ToCoordinator({Encode(ToWire(end))});
  failures_.Hold(end, Now());
}

// The abort word tells the group, and the coordinator tells the others.
void ProgressLoop::TellAll(const EpochEnd& end) {
  if (failures_.holds_sure_end() || !failures_.TellGroup(end)) return;
  control_.ToCoordinator({Encode(ToWire(end))});
  if (!CheckAbortWord()) failures_.Hold(end, Now());  // another member is writing the word, or died while it did
}

// Rank 0 did not say in time which rank is lost, or another member did not finish the abort word. So this rank acts on
// what it knows.
void ProgressLoop::EndIfOverdue(TimePoint now) {
  const std::optional<EpochEnd> own = failures_.TakeOverdue(now);
  if (!own) return;
  failures_.TellGroup(*own);
  if (!CheckAbortWord()) End(*own);
}

bool ProgressLoop::CheckAbortWord() {
  if (!failures_.is_told()) return false;
  if (!operations_->is_broken || !work_.empty() || !eager_.idle()) {
    const EpochEnd told = failures_.Told();
    End(told);
    // The member that noticed told the coordinator, unless it is the one that is gone.
    if (world_->rank == kCoordinatorRank && !world_->one_group()) control_.ToCoordinator({Encode(ToWire(told))});
  }
  return true;
}

// Operations end, and their memory goes back to its owners, once no post touches memory any more.
void ProgressLoop::End(const EpochEnd& end) {
  const bool leaves = end.status.code() == Code::kNotInitialized;  // this rank called shutdown
  if (operations_->recorder) {
    operations_->recorder->NoteEnd(leaves ? FlightHeader::kLeft : FlightHeader::kEnded, end.culprit,
                                   end.status.message());
  }
  failures_.Break(end);
  world_->transport->BeginQuiesce();
  FailAll(end.status, true);
  FinishWithheld();
}

// Sends this rank's last messages. They say that it leaves, so that others do not take the end of its connections for a
// death. REQUIRES: the loop thread has ended, so no other thread drives.
void ProgressLoop::Leave() {
  std::vector<WorkQueue::Ended> ended;
  work_.AwaitCopies(&ended);
  FinishAll(ended);
  EndIfOverdue(TimePoint::max());  // an end that is held is the reason to send
  const int pending = operations_->in_flight;
  if (pending > 0) {
    // The others may still begin operations that this rank has submitted, and would wait for it.
    TellAll(failures_.OfShutdown(pending));
    EndIfOverdue(TimePoint::max());
  } else if (!failures_.is_told()) {
    // A rank that ends because another has left says so, too, so that others do not take it for dead.
    {
      std::lock_guard<std::mutex> lock(operations_->mutex);
      operations_->negotiation.Leave();
    }
    world_->group->RingOthers();
    SendOutgoing();
    eager_.SayFarewell(world_->rank);
  }
  End({{Code::kNotInitialized, "this rank called shutdown"}, -1});
  do {
    FinishWithheld();
  } while (!world_->transport->is_quiet());
}

void ProgressLoop::GiveUp(const Status& reason) {
  Abort(EndBecauseOf(*world_, reason));
  Close();
}

// Each kind of connection ends its own direction before any waits for the other end.
void ProgressLoop::Close() {
  world_->transport->EndSending();
  control_.Close();
  world_->transport = MakeTransport({});
  work_.CloseBackends();
}

}  // namespace farandole
