#include "engine/progress.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace farandole {
namespace {

// Polling sockets takes a system call, so not every pass does it: more passes do where data or messages use sockets.
constexpr unsigned kOften = 8, kSometimes = 32, kSeldom = 256;
constexpr int64_t kCheckMs = 20;
constexpr int64_t kLinksMs = 500;
// How long a rank that leaves waits for members that do not read the log; on a busy machine they may be slow.
constexpr std::chrono::milliseconds kLogPatience{2000};

// Early operations need no messages.
unsigned DescriptorInterval(const World& world, const Operations& operations, const EarlySums& early) {
  if (world.one_node()) return kSeldom;
  return early.asks() && operations.in_flight == early.count() ? kSometimes : kOften;
}

Abort ToWire(const EpochEnd& end) {
  return {static_cast<int32_t>(end.status.code()), end.culprit, end.status.message()};
}

// Returns null if the operation was cancelled meanwhile.
OperationPtr TakeEnded(Operations* operations, Ticket ticket) {
  std::lock_guard<std::mutex> lock(operations->mutex);
  return operations->TakeEnded(ticket);
}

}  // namespace

ProgressLoop::ProgressLoop(Operations* operations, const Settings& settings, const BackendList& backend_list)
    : world_(operations->world),
      operations_(operations),
      fusion_threshold_bytes_(settings.fusion_threshold_bytes),
      control_(world_),
      work_(world_, settings, backend_list),
      early_(operations),
      failures_(operations),
      stalls_(operations, &early_, control_.coordinator(), settings) {}

Status ProgressLoop::Open() {
  FRD_RETURN_IF_ERROR(control_.Open());
  return work_.Open();
}

// Throws if there is still no memory; then the next pass tries again.
void ProgressLoop::EndAfterException(const char* cause) {
  const EpochEnd here = EndBecauseOf(*world_, Internal(cause, " while it performed collectives"));
  Abort(here);
  EndEpoch(here);
  FinishAll(&ended_);
  for (const ReadyOperation& ready : batch_) operations_->Complete(ready.operation, here.status);
  batch_.clear();
}

// Every pass polls what is cheap, and some poll descriptors. Data are handled before signs of an end, and these before
// the log, so that what a rank did before its end counts first.
bool ProgressLoop::Drive() noexcept {
  try {
    if (const char* const thrown = operations_->thrown) {
      EndAfterException(thrown);
      operations_->thrown = nullptr;
      return true;
    }
    std::vector<EarlySums::PeerEvent> events;
    bool moved = early_.Advance(&ended_, &events);
    FinishAll(&ended_);  // before the events, since data may have arrived before the connection ended
    for (const EarlySums::PeerEvent& event : events) {
      if (event.kind == EarlySums::PeerEvent::kGoodbye) failures_.liveness().OnGoodbye(event.rank);
      if (event.kind == EarlySums::PeerEvent::kClosed) failures_.liveness().OnConnectionClosed(event.rank, Now());
      if (event.kind == EarlySums::PeerEvent::kBroken) Abort({event.status, event.rank});
    }
    const bool has_looked = std::exchange(has_looked_, false);
    if (has_looked || passes_++ % DescriptorInterval(*world_, *operations_, early_) == 0) {
      if (!has_looked) moved |= control_.Look();
      HandleEvents();
      CheckPeriodically();
    }
    if (!withheld_.empty()) FinishWithheld();
    moved |= work_.PollCopies(&ended_);
    FinishAll(&ended_);
    moved |= EndJoin();  // also in an epoch that is broken, since a join that has ended in the log does not fail
    if (CheckAbortWord() || failures_.holds_sure_end()) return moved;
    moved |= operations_->AdvanceAllSlots();
    moved |= EnterDeferred();
    moved |= work_.empty() && operations_->AnnounceJoin();
    moved |= Negotiate(nullptr);
    const WorkQueue::Outcome outcome = work_.Run(&ended_);
    if (outcome.removed_set) {
      early_.Forget(*outcome.removed_set);
      std::lock_guard<std::mutex> lock(operations_->mutex);
      operations_->naming.Forget(*outcome.removed_set);
    }
    FinishAll(&ended_);
    // A backend may fail because another rank is gone. Then connections that have ended, or soon will, show which rank
    // that is, and CheckFailures ends the epoch.
    if (outcome.end && !(outcome.may_be_peer && failures_.FindBrokenPeers()))
      Abort(failures_.FirstCauseOf(*outcome.end));
    if (outcome.moved) early_.Wake();
    moved |= outcome.moved;
    moved |= SendOutgoing();
    work_.NoteLongestSleep();
    return moved;
  } catch (const std::exception& thrown) {
    operations_->thrown = CauseOf(thrown);
    return true;
  }
}

// The node's other members may need this rank although it has nothing in flight.
bool ProgressLoop::HasWork() const {
  Negotiation& negotiation = operations_->negotiation;
  return operations_->in_flight > 0 || has_looked_ || control_.has_events() || negotiation.HasNews() ||
         !negotiation.outbox().empty() || operations_->thrown != nullptr;
}

void ProgressLoop::Sleep(int timeout_ms) const { control_.Sleep(work_.SleepAtMost(timeout_ms)); }

void ProgressLoop::SleepAndLook(int timeout_ms) noexcept {
  try {
    control_.Look(work_.SleepAtMost(timeout_ms));
  } catch (const std::exception& thrown) {
    operations_->thrown = CauseOf(thrown);  // for the next pass
  }
  has_looked_ = true;
}

// ---- the negotiation's events

// Events are handled without the lock of Operations, since an operation that ends may submit the next one.
bool ProgressLoop::Negotiate(const Bytes* message) {
  Negotiation& negotiation = operations_->negotiation;
  if (message == nullptr && !negotiation.HasNews()) return false;
  std::vector<Negotiation::Event> events;
  Status status;
  bool moved = false;
  bool ring = false;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    if (message != nullptr) {
      status = negotiation.OnMessage(*message, &events);
    } else {
      moved = negotiation.Advance(&events);
    }
    ring = negotiation.outbox().TakeRing();
  }
  if (ring) world_->node->RingOthers();
  for (const Negotiation::Event& event : events) {
    if (event.kind == Negotiation::Event::kBatch) {
      StartBatch(event);
    } else {
      Handle(event);
    }
  }
  if (!status.ok()) Abort({status, kCoordinatorRank});
  return moved;
}

// The kinds of events are explained in controller/admission.h.
void ProgressLoop::Handle(const Negotiation::Event& event) {
  switch (event.kind) {
    case Negotiation::Event::kBatch:
      return;  // see StartBatch
    case Negotiation::Event::kTake:
      return operations_->TakeSlots(event.items[0].ticket);
    case Negotiation::Event::kFailed:
      return EndWaiting(event.items[0].ticket, event.status);
    case Negotiation::Event::kNamesDiffer:
      return UseFullPool(event.description.signature);
    case Negotiation::Event::kCancelled:
      return early_.Cancel(event.items[0].ticket);
    case Negotiation::Event::kIdEvicted:
      return early_.Evict(event.serial);
    case Negotiation::Event::kInvited:
      stalls_.OnInvited();
      return operations_->EnterInvited(event);
    case Negotiation::Event::kJoinEnd:
      return OnJoinEnd(event);
    case Negotiation::Event::kAsked:
    case Negotiation::Event::kAnswered:
      return stalls_.On(event);
    case Negotiation::Event::kLeft:
      return OnLeft(event.rank);
    case Negotiation::Event::kAbort:
      return Abort({event.status, event.rank});
  }
}

// Takes the status by value: copying it may throw, and must come before the operation leaves by_ticket.
void ProgressLoop::EndWaiting(Ticket ticket, Status status) {
  if (const OperationPtr operation = TakeEnded(operations_, ticket))
    operations_->Complete(operation, std::move(status));
}

// Leaves out operations that were cancelled after FailureMonitor::MarkBroken.
void ProgressLoop::StartBatch(const Negotiation::Event& event) {
  batch_.reserve(event.items.size());
  for (const Negotiation::Item& item : event.items) {
    OperationPtr operation = TakeEnded(operations_, item.ticket);
    if (!operation) continue;
    batch_.push_back({std::move(operation), {}});
    if (FinishWithoutTask(batch_.back().operation, item)) {
      batch_.pop_back();
    } else {
      batch_.back().counts = item.counts;
    }
  }
  RecordBatch(batch_);
  std::vector<PlannedTask> tasks;
  const Status planned = PlanBatch(batch_, fusion_threshold_bytes_, &tasks);
  work_.Add(batch_, std::move(tasks));
  if (!planned.ok()) {
    const EpochEnd here = EndBecauseOf(*world_, planned);
    Abort(here);
    EndEpoch(here);  // at once: nothing may touch the memory of these operations any more. The first reason counts
    for (const ReadyOperation& ready : batch_) operations_->Complete(ready.operation, here.status);
  }
  batch_.clear();
}

// Operations without tensors are complete once every rank has arrived. Only the removal of a process set waits in the
// queue, behind tasks of that set whose data still move.
bool ProgressLoop::FinishWithoutTask(const OperationPtr& operation, const Negotiation::Item& item) {
  const OpKind kind = operation->request.kind;
  if (CarriesTensors(kind) || kind == OpKind::kRemoveProcessSet) return false;
  if (item.new_set >= 0) operation->outputs = {NumbersOutput({item.new_set}, true)};
  operations_->Complete(operation, Status::Ok());
  return true;
}

void ProgressLoop::UseFullPool(const Signature& signature) {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->naming.UseFullPool(signature);
}

// All ranks have joined and go on together, so from here on they count unnamed operations alike.
void ProgressLoop::OnJoinEnd(const Negotiation::Event& event) {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->naming.CatchUp(event.sequence_numbers);
  operations_->last_to_join = event.rank;
}

// Data for operations of the others may still be on their way to this rank. The join waits for them, since the caller
// may shut down next.
bool ProgressLoop::EndJoin() {
  if (!operations_->last_to_join || operations_->in_flight > 1) return false;  // one is the join itself
  std::vector<Output> outputs = {NumbersOutput({*operations_->last_to_join}, true)};
  operations_->last_to_join.reset();
  OperationPtr join;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    join = std::move(operations_->join);
  }
  if (!join) return false;
  join->outputs = std::move(outputs);
  operations_->Complete(join, Status::Ok());
  return true;
}

void ProgressLoop::OnLeft(int rank) {
  if (rank == world_->rank) return;
  const EpochEnd left = failures_.OnLeft(rank);
  early_.SendGoodbyes(rank);
  // Its data came before this message, so small operations in which it took part can complete.
  operations_->AdvanceAllSlots();
  failures_.MarkBroken(left);
}

// ---- driving the parts

// Messages come first: a rank that leaves in good order says so before its connection and its process end. Ends of
// processes are judged together, since one may be the cause of another.
void ProgressLoop::HandleEvents() {
  while (control_.has_events()) {
    const ControlPlane::Events events = control_.TakeEvents();
    for (const Bytes& message : events.messages) Negotiate(&message);
    for (const EpochEnd& end : events.ends) Abort(end);
    for (int rank : events.closed) failures_.liveness().OnControlClosed(rank, Now());
    for (int rank : events.gone) failures_.liveness().OnProcessEnded(rank);
    if (!events.gone.empty()) CheckFailures(Now());
  }
}

// Enters unnamed operations whose name is free again.
bool ProgressLoop::EnterDeferred() {
  bool moved = false;
  while (const OperationPtr operation = operations_->FindDeferred()) {
    Status entered = operations_->Enter(operation, false);
    if (!entered.ok()) operations_->Complete(operation, std::move(entered));
    moved = true;
  }
  return moved;
}

// Comes last in a pass, to send everything that the pass has caused.
bool ProgressLoop::SendOutgoing() {
  if (operations_->negotiation.outbox().empty()) return false;
  std::vector<Bytes> messages;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    messages = operations_->negotiation.outbox().Take();
  }
  operations_->messages_sent.fetch_add(messages.size());
  control_.ToCoordinator(messages);
  HandleEvents();  // on rank 0, the coordinator has answered
  return !messages.empty();
}

// Does what needs a clock: judges suspected ranks and checks long waits.
void ProgressLoop::CheckPeriodically() {
  const TimePoint now = Now();
  if (MillisecondsBetween(last_check_, now) < kCheckMs) return;
  last_check_ = now;
  if (operations_->recorder) operations_->recorder->NoteTime();
  if (operations_->recorder && MillisecondsBetween(last_links_, now) >= kLinksMs) {
    last_links_ = now;
    std::vector<LinkFacts> links;
    world_->transport->AppendLinkFacts(&links);
    operations_->recorder->NoteLinks(links);
  }
  CheckFailures(now);
  EndIfUnconfirmed(now);
  if (failures_.liveness().HasLeftForLong(now)) FailWaiting();
  std::vector<Wait> under_way;
  work_.AddStalledTask(now, &under_way);
  if (const std::optional<EpochEnd> end = stalls_.Check(now, std::move(under_way))) Abort(*end);
}

// A rank that leaves comes in the log after everything that it took part in. So operations of its sets can no longer
// start, unless they are a mismatch: that is reported by a message, which may come a little later. Operations of other
// sets may still start on ranks that have read less of the log, so those ranks must be told.
void ProgressLoop::FailWaiting() {
  const EpochEnd end{operations_->broken, operations_->broken_by};
  if (!failures_.OthersMayBegin()) return FailAll(end.status, false);
  BroadcastEnd(end);
  EndEpoch(end);
}

void ProgressLoop::CheckFailures(TimePoint now) {
  if (!failures_.liveness().suspects_somebody()) return;
  Negotiate(nullptr);  // a suspected rank may have said that it leaves
  if (const std::optional<EpochEnd> end = failures_.FindFailure(now)) Abort(*end);
}

// ---- the end of operations

void ProgressLoop::FinishAll(std::vector<WorkQueue::Ended>* ended) {
  for (const auto& [operation, status] : *ended) operations_->Complete(operation, status);
  ended->clear();
}

// Fails all waiting operations, except early ones that can still complete. At the end of the epoch it fails all, but
// withholds them, since transfers may still touch their memory.
void ProgressLoop::FailAll(const Status& reason, bool at_end) {
  failures_.TakeWaiting(at_end ? nullptr : &early_, &failing_);
  for (const OperationPtr& operation : failing_) early_.Cancel(operation->admission.ticket);
  if (at_end) {
    work_.Cancel(&failing_, &ended_);
    FinishAll(&ended_);
    early_.Drop();
  }
  if (!failing_.empty() && reason.code() == Code::kPeerLost) {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    operations_->RecordLostRank();
  }
  for (const OperationPtr& operation : failing_) {
    const Status status = failures_.FailureOf(*operation, reason);
    at_end ? withheld_.push_back({operation, status}) : operations_->Complete(operation, status);
  }
  failing_.clear();
}

void ProgressLoop::FinishWithheld() {
  std::vector<Transport::Completion> none;
  if (!world_->transport->is_quiet()) world_->transport->Poll(&none);
  if (world_->transport->is_quiet()) FinishAll(&withheld_);
}

// ---- the end of the epoch

// Does nothing if the epoch has ended, that is, if it refuses operations and none is under way: its reason is known. If
// some are under way, a rank has only left in good order, and they may need the rank that is lost now. Single messages
// may need it in any case.
void ProgressLoop::Abort(const EpochEnd& end) {
  if (operations_->is_broken && work_.empty() && early_.idle()) {
    failures_.MarkBroken(end);
    operations_->is_over = true;
    return;
  }
  if (!failures_.NeedsRankZero(end)) return BroadcastEnd(end);
  control_.ToCoordinator({Encode(ToWire(end))});
  failures_.Hold(end, Now());
}

// The abort word tells the ranks of this node, and the coordinator tells the others.
void ProgressLoop::BroadcastEnd(const EpochEnd& end) {
  if (failures_.holds_sure_end() || !failures_.WriteAbortWord(end)) return;
  control_.ToCoordinator({Encode(ToWire(end))});
  if (!CheckAbortWord()) failures_.Hold(end, Now());  // another member is writing the word, or died while it did
}

// Ends the epoch for this rank's own reason if rank 0 has not named the lost rank in time, or if another member has not
// finished writing the abort word.
void ProgressLoop::EndIfUnconfirmed(TimePoint now) {
  const std::optional<EpochEnd> own = failures_.TakeUnconfirmed(now);
  if (!own) return;
  failures_.WriteAbortWord(*own);
  if (!CheckAbortWord()) EndEpoch(*own);
}

bool ProgressLoop::CheckAbortWord() {
  if (!failures_.is_aborted()) return false;
  if (!operations_->is_broken || !work_.empty() || !early_.idle()) {
    const EpochEnd end = failures_.ReadAbortWord();
    EndEpoch(end);
    // The member that wrote the word has told the coordinator, unless that member is the one that is gone.
    if (world_->rank == kCoordinatorRank && !world_->one_node()) control_.ToCoordinator({Encode(ToWire(end))});
  } else {
    operations_->is_over = true;
  }
  return true;
}

// Operations end, and return their memory to its owners, once no transfer touches it any more (invariant 3).
void ProgressLoop::EndEpoch(const EpochEnd& end) {
  const bool leaves = end.status.code() == Code::kNotInitialized;  // this rank called shutdown
  if (operations_->recorder) {
    operations_->recorder->NoteEnd(leaves ? FlightHeader::kLeft : FlightHeader::kEnded, end.culprit,
                                   end.status.message());
  }
  failures_.MarkBroken(end);
  operations_->is_over = true;
  world_->transport->BeginQuiesce();
  FailAll(end.status, true);
  FinishWithheld();
}

// The last messages say that this rank leaves, so that others do not take the end of its connections for a death.
// REQUIRES: the loop thread has ended, so no other thread drives.
void ProgressLoop::Leave() {
  if (operations_->thrown != nullptr) Drive();  // so that the others hear this reason
  work_.AwaitCopies(&ended_);
  FinishAll(&ended_);
  EndIfUnconfirmed(TimePoint::max());  // an end that is held back is the reason to send
  const EpochEnd end{{Code::kNotInitialized, "this rank called shutdown"}, -1};
  // From here on nothing begins: what other threads submit once the log says that this rank leaves would never end.
  const int pending = failures_.MarkBrokenIfIdle(end);
  if (pending > 0) {
    // The others may still begin operations that this rank has submitted, and would wait for it.
    BroadcastEnd(failures_.ShutdownEnd(pending));
    EndIfUnconfirmed(TimePoint::max());
  } else if (!failures_.is_aborted()) {
    // A rank that ends because another has left sends this, too, so that others do not take it for dead.
    AnnounceLeaving();
    SendOutgoing();
    early_.SendGoodbyes(world_->rank);
  }
  EndEpoch(end);
  do {
    FinishWithheld();
  } while (!world_->transport->is_quiet());
}

// The log is full if some member does not read it: it is descheduled or asleep, or it is this rank itself. A member
// that reads nothing for kLogPatience is taken for dead, and its death ends the epoch on the others.
void ProgressLoop::AnnounceLeaving() {
  const auto is_logged = [this] {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    return operations_->negotiation.LogLeaving();
  };
  const TimePoint limit = Now() + kLogPatience;
  while (!is_logged() && Now() < limit && !failures_.is_aborted()) {
    world_->node->RingOthers();
    SleepAndLook(1);
    Drive();
  }
  world_->node->RingOthers();
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->negotiation.SendLeaving();
}

void ProgressLoop::GiveUp(const Status& reason) {
  Abort(EndBecauseOf(*world_, reason));
  Close();
}

// Every kind of connection shuts down its sending side before any of them waits for its peer.
void ProgressLoop::Close() {
  world_->transport->EndSending();
  control_.Close();
  world_->transport = MakeTransport({});
  work_.CloseBackends();
}

}  // namespace farandole
