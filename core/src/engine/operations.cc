#include "engine/operations.h"

#include <algorithm>
#include <new>

#include "collectives/slot_reduction.h"
#include "common/failpoint.h"

namespace farandole {

namespace {

// The error for a call after the epoch has been broken, or after this rank has joined.
Status CannotStart(Operations* operations, const Operation& operation) {
  const std::string what = operation.Title() + " cannot start on rank " + std::to_string(operations->world->rank);
  if (operations->is_broken) {
    if (operations->broken.code() == Code::kPeerLost) operations->RecordLostRank();
    return Status(operations->broken.code(), what, ": ", operations->broken.message(),
                  "; call shutdown and init to begin anew");
  }
  return Invalid(what, ": this rank has joined; wait for join to end first");
}

uint64_t BytesOf(const Request& request) {
  uint64_t total = 0;
  for (const Tensor& tensor : request.tensors) total += tensor.size_bytes();
  return total;
}

// Without memory for its texts, an operation is not recorded.
void Record(Operations* operations, Operation* operation) {
  FlightRecorder* const recorder = operations->recorder.get();
  if (recorder == nullptr) return;
  FlightLabel join;
  FlightLabel* const label = operation->admission.label != nullptr ? operation->admission.label : &join;
  const int64_t number = operation->named() ? -1 : operation->sequence_number();
  const auto texts = [operation] { return operation->Texts(); };
  try {
    operation->record = recorder->Begin(label, operation->Facts(), operation->site(), number, texts);
  } catch (const std::bad_alloc&) {
  }
}

// ---- the data of small operations. Under the lock; nothing here allocates

void WriteSmall(const Operation& operation, bool wants_doorbell) {
  const Span<const SlotTensor> tensors = operation.slot_tensors();
  const Admission& admission = operation.admission;
  SlotBuffer slots = *admission.slots;
  if (admission.two_phase) {
    slots.WriteForOthers(tensors.begin(), tensors.size(), admission.generation(), wants_doorbell);
  } else {
    slots.Write(tensors.begin(), tensors.size(), admission.generation(), wants_doorbell);
  }
  RingFence();  // for doorbells, and for UsesInFlight::CanAdvance, which REQUIRES it
}

// Reduces: a small operation, which is then complete, or this rank's share of one in two phases. REQUIRES: all inputs
// are written.
void Reduce(const Operation& operation, const ProcessSet& set) {
  const FloatingPointScope scope;
  const Span<const SlotTensor> tensors = operation.slot_tensors();
  const auto [reduce, scale] = ReductionOf(operation.request, set.size());
  const Admission& admission = operation.admission;
  const SlotBuffer& slots = *admission.slots;
  if (admission.two_phase)
    return ReduceShare(slots, reduce, scale, tensors.begin(), tensors.size(), admission.generation());
  ReduceSlots(slots, reduce, scale, tensors.begin(), tensors.size(), set.position);
}

// Prepares the reduction of an operation in one phase, before the others' data arrive.
TensorReduction PrepareReduction(const Operation& operation, const ProcessSet& set) {
  const Reduction reduction = ReductionOf(operation.request, set.size());
  return {*operation.admission.slots,  reduction.reduce, reduction.scale,
          operation.slot_tensors()[0], /*offset=*/0,     set.position};
}

// Checks at least once, and before the first pause (docs/benchmarks/shared-memory.md#waiting).
bool PollUntilReady(const Operations& operations, const Admission& admission, int polls) {
  return Waiter(polls - 1, 0).Until([&] { return operations.negotiation.CanAdvance(admission); });
}

// How often a blocking call polls for the other ranks' data, and then for their shares, which all reduce at the same
// time. More often for larger data, which take longer to write and to reduce.
int MaxPolls(const Operations& operations, const Operation& operation) {
  constexpr int kFactor = 4;
  if (!operation.admission.two_phase) return std::max(operations.pauses, 1);
  size_t size_bytes = 0;
  for (const SlotTensor& tensor : operation.slot_tensors()) size_bytes += tensor.size_bytes();
  return operations.pauses > 0 ? kFactor * operations.pauses + static_cast<int>(size_bytes >> 10) : 1;
}

// Wakes the ranks that sleep until this rank has taken its last step. The caller has seen all sequence numbers. Of two
// ranks that write at the same time at least one sees both, since each has a fence between its write and its check.
// REQUIRES: RingFence since the step, then CanAdvance.
void RingForSlots(const World& world, const Admission& admission, const ProcessSet& set) {
  for (int position = 0; position < set.size(); ++position) {
    if (position == set.position || !admission.slots->WantsDoorbell(position)) continue;
    const auto rank = static_cast<size_t>(set.ranks[static_cast<size_t>(position)]);
    world.node->RingMember(world.layout.member_of[rank]);
  }
}

// Takes the steps that are left once all data are written: reduces and, in two phases, polls for the others' shares
// and copies them. Returns whether the result is complete.
bool TakeSteps(const Operations& operations, const Operation& operation, const ProcessSet& set, int polls) {
  const Admission& admission = operation.admission;
  const SlotBuffer& slots = *admission.slots;
  if (!admission.two_phase) {
    Reduce(operation, set);
    return true;
  }
  if (!slots.HasReduced(slots.self(), admission.generation())) {
    Reduce(operation, set);
    RingFence();
    if (!PollUntilReady(operations, admission, polls)) return false;
    RingForSlots(*operations.world, admission, set);
  }
  if (!slots.AllHaveReduced(admission.generation())) return false;
  CopyShares(slots, operation.slot_tensors().begin(), operation.slot_tensors().size());
  return true;
}

// Goes on with a small operation. Returns it if it is complete; then the caller ends it, without the lock. Returns null
// if it is not, or was cancelled, or another thread has completed it. REQUIRES: CanAdvance, or the log says that all
// data are written.
OperationPtr AdvanceSlots(Operations* operations, Ticket ticket, int polls = 1) {
  if (!operations->negotiation.IsSmall(ticket)) return nullptr;
  const Operation* const operation = operations->by_ticket.Find(ticket);
  if (operation != nullptr && !TakeSteps(*operations, *operation, *operation->admission.set, polls)) return nullptr;
  operations->negotiation.EndSmall(ticket);
  return operations->TakeEnded(ticket);
}

// As AdvanceSlots, for a blocking call that is not in flight: polls for the others' data, and then for their shares.
// Returns whether the result is complete.
bool CompletesAtOnce(const Operations& operations, const Operation& operation, const Name& name,
                     const ProcessSet& set) {
  const Admission& admission = operation.admission;
  const int polls = MaxPolls(operations, operation);
  if (admission.two_phase) {
    if (!PollUntilReady(operations, admission, polls)) return false;
    RingForSlots(*operations.world, admission, set);
    return TakeSteps(operations, operation, set, polls);
  }
  const TensorReduction reduction = PrepareReduction(operation, set);
  if (!PollUntilReady(operations, admission, polls)) return false;
  operations.negotiation.PrefetchNext(name);
  RingForSlots(*operations.world, admission, set);
  const FloatingPointScope scope;
  FRD_FAILPOINT("slots.reduce");
  reduction.Run();
  return true;
}

}  // namespace

// ---- submission

// What is left to do for an operation once the lock is free. Decided under the lock, since the driver may cancel the
// operation after that.
struct Operations::Outcome {
  bool last = false, wakes_driver = false, rings_for_shares = false;
  OperationPtr complete;  // the operation, if it is
};

// If this throws, either the operation has not begun, or this rank has arrived and the epoch must end.
Status Operations::Enter(const OperationPtr& operation, bool polling) {
  Outcome outcome;
  Status status;
  {
    std::lock_guard<std::mutex> lock(mutex);
    status = EnterLocked(operation, polling, &outcome);
    if (!status.ok()) RemoveDeferred(operation);
  }
  if (outcome.complete) CompleteOk(outcome.complete);
  if (outcome.rings_for_shares) RequestDoorbells();  // no thread waits for this operation, so none would do it later
  if (outcome.last) world->node->RingOthers();
  if ((outcome.last || outcome.wakes_driver) && (!polling || !status.ok())) world->node->RingSelf();
  return status;
}

// The name and its number, submission, copy and arrival are one step under the lock, see negotiation.h.
Status Operations::EnterLocked(const OperationPtr& operation, bool polling, Outcome* outcome) {
  Admission& admission = operation->admission;
  const uint64_t size_bytes = BytesOf(operation->request);
  const auto may_have_slots = MayHaveSlots(operation->request.kind, static_cast<int64_t>(size_bytes));
  // A thread that waits for a handle polls, and asks for doorbells only before it sleeps. So nobody wakes the loop
  // thread while a caller is about to wait (docs/benchmarks/shared-memory.md#waiting).
  const bool wants_doorbell = !polling && operation->request.done != nullptr;
  const bool was_deferred = operation->deferred();
  Naming::Reservation reserved;  // of an unnamed operation that has no name yet
  if (operation->name().empty()) reserved = naming.Name(operation.get());
  if (is_broken || (join && !was_deferred)) return CannotStart(this, *operation);
  if (operation->request.kind == OpKind::kRemoveProcessSet) {
    const int set = static_cast<int>(operation->request.ranks[0]);
    if (operation->named()) FRD_RETURN_IF_ERROR(negotiation.CanBegin(set));  // this rank has no part in it, or no more
    Status possible = CanRemove(set);
    if (!possible.ok()) {
      if (operation->named()) {
        RefuseRemoval(*operation, possible.message());
      } else {
        Refuse(operation->set(), "", std::string(operation->site()), possible.message());
      }
      outcome->wakes_driver = true;
      return possible;
    }
  }
  if (OperationPtr before = reserved.before()) {
    FRD_RETURN_IF_ERROR(negotiation.CanBegin(operation->set()));
    deferred.push_back({operation, std::move(before)});
    has_deferred = outcome->wakes_driver = true;  // `before` may be done already
    reserved.Commit(operation);
    Begin(operation.get(), Operation::State::kDeferred);
    return Status::Ok();
  }
  if (may_have_slots) operation->SetSlotTensors();
  by_ticket.Reserve(negotiation.Reserve());
  FRD_RETURN_IF_ERROR(negotiation.Submit(*operation, &admission));
  if (reserved) reserved.Commit(operation);
  ++entered;
  CountBytes(size_bytes);
  Begin(operation.get(), Operation::State::kSubmitted);
  by_ticket.Insert(operation);
  if (was_deferred) RemoveDeferred(operation);
  Record(this, operation.get());
  if (admission.slots) {
    WriteSmall(*operation, wants_doorbell);
    if (negotiation.CanAdvance(admission)) {
      RingForSlots(*world, admission, *admission.set);
      outcome->complete = AdvanceSlots(this, admission.ticket);
    }
    outcome->rings_for_shares = admission.two_phase && wants_doorbell && !outcome->complete;
  } else if (admission.id >= 0) {
    const auto arrived = negotiation.Arrive(admission);
    if (arrived == Negotiation::Arrived::kEvicted) {
      admission.early = false;
      negotiation.Redescribe(admission.ticket);
    }
    outcome->last = arrived == Negotiation::Arrived::kLast && !admission.early;
    if (outcome->last) negotiation.PublishComplete(admission);
    if (admission.early) {
      early.push_back(operation);
      has_early = outcome->wakes_driver = true;
    }
  }
  if (!negotiation.outbox().empty()) outcome->wakes_driver = true;
  return Status::Ok();
}

// Submits the borrowed operation, writes its data and polls for the others in one step under the lock: they are usually
// about to arrive, and taking the lock twice would cost as much as transferring their cache lines.
bool Operations::EnterBorrowed(const RequestView& request, OperationPtr* result) {
  OperationPtr operation;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (is_broken || join) return false;
    Naming::Reservation reserved;
    if (request.name.empty() && !(reserved = naming.Reserve(request))) return false;
    operation = spare ? std::move(spare) : std::make_shared<Operation>();
    operation->Borrow(request, reserved ? reserved.name() : request.name, reserved ? reserved.sequence_number() : -1);
    Admission& admission = operation->admission;
    by_ticket.Reserve(negotiation.Reserve());
    Name* const known = negotiation.SubmitSmall(*operation, &admission);
    if (known == nullptr) {
      spare = std::move(operation);
      return false;
    }
    // Until Own nothing below throws.
    const ProcessSet& set = *known->of->set;
    const SlotTensor& tensor = operation->slot_tensors()[0];
    ++entered;
    CountBytes(tensor.size_bytes());
    WriteSmall(*operation, /*wants_doorbell=*/false);
    Record(this, operation.get());  // after the write, to overlap with the transfer
    if (CompletesAtOnce(*this, *operation, *known, set)) {
      // A small one ends without another look at the clock.
      FlightRecord* const record = operation->record;
      if (record != nullptr)
        record->End(admission.two_phase ? Ticks() : record->submitted.load(std::memory_order_relaxed));
      spare = std::move(operation);
    } else {
      negotiation.AddInFlight(known, &admission);
      try {
        operation->Own();
      } catch (const std::exception&) {
        *result = std::move(operation);
        throw;
      }
      admission.set = known->of->set;  // not earlier: counting references costs as much as the rest of this block
      Begin(operation.get(), Operation::State::kSubmitted);
      by_ticket.Insert(operation);
    }
    if (reserved) reserved.Commit(operation);
  }
  *result = std::move(operation);
  return true;
}

Status Operations::Join(const OperationPtr& operation) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (is_broken || join) return CannotStart(this, *operation);
    join = operation;
    wants_join = true;
    Record(this, operation.get());
    Begin(operation.get(), Operation::State::kSubmitted);
  }
  world->node->RingSelf();
  return Status::Ok();
}

bool Operations::AnnounceJoin() {
  if (!wants_join) return false;
  std::lock_guard<std::mutex> lock(mutex);
  if (!by_ticket.empty() || has_deferred) return false;
  wants_join = false;
  negotiation.SendJoin(naming.sequence_numbers());
  return true;
}

void Operations::EnterInvited(const Negotiation::Event& event) {
  auto operation = std::make_shared<Operation>(Invitation(event.description));
  operation->SetName(event.description.name, event.description.sequence_number);
  operation->invited = true;
  operation->backend = event.description.signature.backend;
  std::lock_guard<std::mutex> lock(mutex);
  if (is_broken) return;
  by_ticket.Reserve(IndexOf(event.items[0].ticket));
  operation->admission.ticket = event.items[0].ticket;
  operation->admission.set = event.set;
  Begin(operation.get(), Operation::State::kSubmitted);
  by_ticket.Insert(operation);
}

// The thread that ends `before` wakes the driver, see CompleteOk.
OperationPtr Operations::FindDeferred() {
  if (!has_deferred) return nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  const auto is_free = [](const Deferred& each) { return each.before->done(); };
  const auto found = std::find_if(deferred.begin(), deferred.end(), is_free);
  return found == deferred.end() ? nullptr : found->operation;
}

void Operations::RemoveDeferred(const OperationPtr& operation) {
  const auto is_it = [&](const Deferred& each) { return each.operation == operation; };
  const auto found = std::find_if(deferred.begin(), deferred.end(), is_it);
  if (found != deferred.end()) deferred.erase(found);
  has_deferred = !deferred.empty();
}

Status Operations::CanRemove(int set) const {
  for (const Deferred& waiting : deferred) {
    if (waiting.operation->set() == set) return InUse(set, waiting.operation->Title(), world->rank);
  }
  return negotiation.CanRemove(set);
}

// A rank outside the set, or with that name in flight, refuses nothing and consumes no sequence number.
void Operations::Refuse(int set, const std::string& name, const std::string& site, const std::string& why) {
  if (is_broken || join) return;
  const bool named = !name.empty();
  const int64_t number = named ? -1 : naming.NextNumber(set);
  if (negotiation.Refuse(RefusalOf(set, name, number, site, why)) && !named) naming.TakeNumber(set);
}

// The refusal says which set it is about, so that rank 0 waits for the members of that set only.
void Operations::RefuseRemoval(const Operation& operation, const std::string& why) {
  Description refusal = operation.Describe();
  refusal.refusal = why;
  negotiation.Refuse(std::move(refusal));
}

const char* CauseOf(const std::exception& thrown) {
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  return is_memory ? "it ran out of memory" : "an internal error";
}

void Operations::RecordLostRank() {
  needed_lost_rank = true;
  if (!recorder) return;
  recorder->NoteEnd(FlightHeader::kEnded, broken_by, broken.message());
}

void Operations::RequestDoorbells() noexcept {
  if (!negotiation.has_small()) return;
  std::vector<int> late;
  try {
    std::lock_guard<std::mutex> lock(mutex);
    late = negotiation.RequestDoorbells();
  } catch (const std::exception& cause) {
    thrown = CauseOf(cause);
    world->node->RingSelf();
  }
  if (late.empty()) return;
  RingFence();
  for (const int rank : late) world->node->RingMember(world->layout.member_of[static_cast<size_t>(rank)]);
}

bool Operations::Poll(const OperationPtr& operation) {
  if (operation->done()) return true;
  const Admission& admission = operation->admission;
  if (operation->deferred() || !admission.slots || !negotiation.CanAdvance(admission)) return false;
  OperationPtr complete;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const int polls = operation->awaited ? MaxPolls(*this, *operation) : 1;
    if (negotiation.CanAdvance(admission)) complete = AdvanceSlots(this, admission.ticket, polls);
  }
  if (!complete) return operation->done();
  CompleteOk(complete);
  return true;
}

bool Operations::AdvanceAllSlots() {
  if (!negotiation.has_small()) return false;
  std::vector<OperationPtr> complete;
  std::vector<Ticket> ready;
  {
    std::lock_guard<std::mutex> lock(mutex);
    ready = negotiation.ReadySmall();
    complete.reserve(ready.size());  // so that an exception cannot lose a removed operation
    for (Ticket ticket : ready) {
      if (OperationPtr operation = AdvanceSlots(this, ticket)) complete.push_back(std::move(operation));
    }
  }
  for (const OperationPtr& operation : complete) Complete(operation, Status::Ok());
  return !ready.empty();
}

// The negotiation has ended the operation, unless it takes two phases.
void Operations::TakeSlots(Ticket ticket) {
  OperationPtr complete;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const Operation* const operation = by_ticket.Find(ticket);
    if (operation == nullptr) return;
    if (operation->admission.two_phase) {
      complete = AdvanceSlots(this, ticket);
    } else {
      Reduce(*operation, *operation->admission.set);
      complete = TakeEnded(ticket);
    }
  }
  if (complete) Complete(complete, Status::Ok());
}

void Operations::CompleteOk(const OperationPtr& operation) {
  Complete(operation, Status::Ok());
  if (has_deferred || negotiation.HasFinished()) world->node->RingSelf();
}

}  // namespace farandole
