#include "engine/operations.h"

#include <algorithm>
#include <new>

#include "collectives/slot_reduction.h"
#include "common/failpoint.h"

namespace farandole {

namespace {

Status RefuseAfter(Operations* operations, const Operation& operation) {
  const std::string what = operation.Title() + " cannot start on rank " + std::to_string(operations->world->rank);
  if (operations->is_broken) {
    if (operations->broken.code() == Code::kPeerLost) operations->MissLost();
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

// A thread that waits for a handle polls, and asks for bells only before it sleeps. So nobody wakes the loop thread
// while a caller is about to wait (docs/benchmarks/shared-memory.md#waiting).
bool WantsBell(const Operation& operation, bool polling) { return !polling && operation.request.done != nullptr; }

// ---- the data of small operations
//
// Call these under the lock; for a large admission, between the negotiation's Submit or TakeReady and its Release. They
// do not allocate, so Release is always reached, which does not allocate either.

void PutSmall(Operation* operation, const ProcessSet& set, bool wants_bell) {
  const Span<const CellTensor> tensors = operation->cell_tensors();
  Admission& admission = operation->admission;
  CellBuffer& cells = *admission.cells;
  if (admission.large) return cells.PutForOthers(tensors.begin(), tensors.size(), admission.stamp(), wants_bell);
  cells.Put(set.position, tensors.begin(), tensors.size(), admission.stamp(), wants_bell);
}

// Reduces: a small operation, which is then complete, or this rank's share of a large one. REQUIRES: all inputs are
// written.
void Reduce(const Operation& operation, const ProcessSet& set) {
  const FloatingPointScope scope;
  const Span<const CellTensor> tensors = operation.cell_tensors();
  const auto [reduce, scale] = ReductionOf(operation.request, set.size());
  const Admission& admission = operation.admission;
  const CellBuffer& cells = *admission.cells;
  if (admission.large) return ReduceShare(cells, reduce, scale, tensors.begin(), tensors.size(), admission.stamp());
  ReduceSlots(cells, reduce, scale, tensors.begin(), tensors.size(), set.position);
}

// Prepares the reduction of an operation that is not large, before the others' data arrive.
TensorFold PrepareFold(const Operation& operation, const ProcessSet& set) {
  const Reduction reduction = ReductionOf(operation.request, set.size());
  return {*operation.admission.cells,  reduction.reduce, reduction.scale,
          operation.cell_tensors()[0], /*offset=*/0,     set.position};
}

// ---- submission

// The log is full if some rank does not read it. That may be this rank, so the driver must not block here.
void Complete(Operations* operations, const Admission& admission) {
  if (operations->negotiation.CompleteTogether(admission)) return;
  std::lock_guard<std::mutex> lock(operations->mutex);
  operations->negotiation.CompleteLater(admission);
}

// Wakes the ranks that sleep until all data are written. The caller has seen all sequence numbers. Of two ranks that
// write at the same time at least one sees both, since each has a fence between its write and its check.
// REQUIRES: RingFence since the write, then IsReady.
void RingForSmall(const World& world, const Admission& admission, const ProcessSet& set) {
  for (int position = 0; position < set.size(); ++position) {
    if (position == set.position || !admission.cells->WantsBell(position)) continue;
    const auto rank = static_cast<size_t>(set.ranks[static_cast<size_t>(position)]);
    world.group->RingMember(world.layout.member_of[rank]);
  }
}

// Ends this thread's reservation of a large operation. taken: it is complete.
void Release(Operations* operations, Ticket ticket, bool taken) {
  bool wakes_driver;
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    wakes_driver = operations->negotiation.Release(ticket, taken);
  }
  if (wakes_driver) operations->world->group->RingSelf();
}

// Likewise, where another thread is to go on. If the last rank has rung meanwhile, the driver has found nothing to do.
void PutBack(Operations* operations, const OperationPtr& operation) {
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    operations->by_ticket.Put(operation);
  }
  Release(operations, operation->admission.ticket, /*taken=*/false);
  if (operations->negotiation.IsReady(operation->admission)) operations->world->group->RingSelf();
}

// Checks at least once, and before the first pause (docs/benchmarks/shared-memory.md#waiting).
bool BecomesReady(const Negotiation& negotiation, const Admission& admission, size_t looks) {
  return Waiter(static_cast<int>(looks) - 1, 0).Until([&] { return negotiation.IsReady(admission); });
}

// How often a blocking call looks for the other ranks' data, and then for their shares, which all reduce at the same
// time. Longer for larger data, which take longer to write and to reduce.
size_t LooksFor(const Operations& operations, const Operation& operation) {
  constexpr size_t kFactor = 4;
  size_t size_bytes = 0;
  for (const CellTensor& tensor : operation.cell_tensors()) size_bytes += tensor.size_bytes();
  return operations.pauses > 0 ? kFactor * static_cast<size_t>(operations.pauses) + (size_bytes >> 10) : 1;
}

// Goes on with a large operation for which all data are there: reduces this rank's share, looks for the others', and
// completes the operation if they are there. REQUIRES: this thread has reserved it and taken it out of by_ticket.
// Returns whether it is complete; else it is back in by_ticket.
bool RunLarge(Operations* operations, const OperationPtr& operation, size_t looks) {
  const Admission& admission = operation->admission;
  const CellBuffer& cells = *admission.cells;
  if (!cells.HasReduced(cells.self(), admission.stamp())) {
    Reduce(*operation, *admission.set);
    RingFence();
    if (BecomesReady(operations->negotiation, admission, looks))
      RingForSmall(*operations->world, admission, *admission.set);
  }
  if (!cells.AllHaveReduced(admission.stamp())) {
    PutBack(operations, operation);
    return false;
  }
  CopyShares(cells, operation->cell_tensors().begin(), operation->cell_tensors().size());
  Release(operations, admission.ticket, /*taken=*/true);
  operations->End(operation, Status::Ok());
  return true;
}

// Takes a small operation for which all data are written. Returns null if it was cancelled or another thread has it.
// Reduces it at once, under the lock, unless it is large: the negotiation may give its slots to another operation next.
OperationPtr TakeSmall(Operations* operations, Ticket ticket) {
  OperationPtr operation = operations->by_ticket.Take(ticket);
  if (operation && !operation->admission.large) Reduce(*operation, *operation->admission.set);
  return operation;
}

// Takes the operation if it is ready. Returns null if another thread has taken it, or it was cancelled. Under the lock.
OperationPtr TakeIfReady(Operations* operations, Ticket ticket) {
  if (!operations->negotiation.TakeReady(ticket)) return nullptr;
  OperationPtr operation = TakeSmall(operations, ticket);
  if (!operation) operations->negotiation.Release(ticket);
  return operation;
}

// Call it after TakeIfReady or TakeSmall, without the lock. Returns whether the operation is complete.
bool FinishTaken(Operations* operations, const OperationPtr& operation, size_t looks = 1) {
  if (operation->admission.large) return RunLarge(operations, operation, looks);
  operations->End(operation, Status::Ok());
  return true;
}

// Keeps an operation that is done, unless another thread still has it.
void KeepAsSpare(Operations* operations, OperationPtr operation) {
  std::lock_guard<std::mutex> lock(operations->mutex);
  if (operation.use_count() == 1) operations->spare = std::move(operation);
}

// Writes the data of a large borrowed operation, which is in flight, and goes on with it if the others arrive while it
// polls. Does both without the lock, in one reservation.
void RunLargeBorrowed(Operations* operations, const OperationPtr& operation) {
  const Admission& admission = operation->admission;
  PutSmall(operation.get(), *admission.set, /*wants_bell=*/false);
  RingFence();
  const size_t looks = LooksFor(*operations, *operation);
  if (!BecomesReady(operations->negotiation, admission, looks)) return PutBack(operations, operation);
  RingForSmall(*operations->world, admission, *admission.set);
  RunLarge(operations, operation, looks);
}

// Goes on with a small operation that has entered.
void GoOnSmall(Operations* operations, const OperationPtr& operation, bool wants_bell) {
  const Admission& admission = operation->admission;
  if (admission.large) PutSmall(operation.get(), *admission.set, wants_bell);
  RingFence();
  if (operations->negotiation.AnyJoined()) operations->world->group->RingOthers();
  // Before Release, after which another thread may begin the second phase.
  if (operations->negotiation.IsReady(admission)) RingForSmall(*operations->world, admission, *admission.set);
  if (admission.large) Release(operations, admission.ticket, /*taken=*/false);
  if (!operations->Poll(operation) && wants_bell)
    operations->AskForBells();  // no thread waits for this operation, so none would ring for missing shares
}

}  // namespace

// Submission, copy and arrival are one step under the lock, see negotiation.h; only the copy of a large operation comes
// later. If this throws, either the operation has not begun, or this rank has arrived and the epoch must end.
Status Operations::Enter(const OperationPtr& operation, bool polling) {
  Admission& admission = operation->admission;
  const uint64_t size_bytes = BytesOf(operation->request);
  const auto may_have_cells = MayHaveCells(operation->request.kind, static_cast<int64_t>(size_bytes));
  auto arrived = Negotiation::Arrived::kCounted;
  bool wakes_driver = false;
  OperationPtr withdrawn;  // the operation, if it is a stale invitation; another one will come
  {
    std::lock_guard<std::mutex> lock(mutex);
    const bool has_joined = join && !operation->invited && !operation->deferred();
    if (is_broken || has_joined) return RefuseAfter(this, *operation);
    if (may_have_cells) operation->SetCellTensors();
    by_ticket.MakeRoom(negotiation.MakeRoom());
    FRD_RETURN_IF_ERROR(negotiation.Submit(*operation, &admission));
    ++entered;
    if (!operation->invited) CountBytes(size_bytes);
    Begin(operation.get(), Operation::State::kSubmitted);
    by_ticket.Put(operation);
    Record(this, operation.get());
    if (admission.cells) {
      if (!admission.large) PutSmall(operation.get(), *admission.set, WantsBell(*operation, polling));
    } else if (admission.id >= 0) {
      arrived = negotiation.Arrive(admission);
      const bool retired = arrived == Negotiation::Arrived::kRetired;
      if (retired && !negotiation.Redescribe(admission.ticket)) withdrawn = by_ticket.Take(admission.ticket);
      if (admission.early && !retired) {
        early.push_back(operation);
        has_early = wakes_driver = true;
      }
    }
    if (!negotiation.outbox().empty()) wakes_driver = true;
  }
  if (admission.cells) {
    GoOnSmall(this, operation, WantsBell(*operation, polling));
    return Status::Ok();
  }
  if (withdrawn) End(withdrawn, Status::Ok());
  const bool last = arrived == Negotiation::Arrived::kLast && !admission.early;
  if (last) Complete(this, admission);
  if (last || (admission.id >= 0 && negotiation.AnyJoined())) world->group->RingOthers();
  if ((last || wakes_driver) && !polling) world->group->RingSelf();
  return Status::Ok();
}

// Submits the borrowed operation, writes its data and polls for the others in one step under the lock: they are usually
// about to arrive, and taking the lock twice would cost as much as transferring their cache lines.
bool Operations::EnterBorrowed(const RequestView& request, std::string_view name, int64_t sequence_number,
                               OperationPtr* result) {
  OperationPtr operation;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (is_broken || join) return false;
    operation = spare ? std::move(spare) : std::make_shared<Operation>();
    operation->Borrow(request, name, sequence_number);
    Admission& admission = operation->admission;
    by_ticket.MakeRoom(negotiation.MakeRoom());
    Name* const known = negotiation.SubmitSmall(*operation, &admission);
    if (known == nullptr) {
      spare = std::move(operation);
      return false;
    }
    // Until Own nothing below throws.
    const ProcessSet& set = *known->of->set;
    const CellTensor& tensor = operation->cell_tensors()[0];
    ++entered;
    CountBytes(tensor.size_bytes());
    if (!admission.large) {
      admission.cells->Put(set.position, &tensor, 1, admission.stamp(), /*wants_bell=*/false);
      RingFence();
    }
    Record(this, operation.get());  // after the write, to overlap with the transfer
    bool is_over = false;
    if (!admission.large) {
      const TensorFold fold = PrepareFold(*operation, set);
      is_over = Waiter(std::max(pauses, 1) - 1, 0).Until([&] { return negotiation.IsReady(admission); });
      if (is_over) {
        negotiation.Settle(known, /*at_once=*/true, &admission);
        RingForSmall(*world, admission, set);
        const FloatingPointScope scope;
        FRD_FAILPOINT("cells.fold");
        fold.Run();
        FlightRecord* const record = operation->record;
        if (record != nullptr) record->End(record->submitted.load(std::memory_order_relaxed));  // without a clock
        spare = std::move(operation);
      }
    }
    if (!is_over) {
      negotiation.Settle(known, /*at_once=*/false, &admission);
      try {
        operation->Own();
      } catch (const std::exception&) {
        negotiation.Release(admission.ticket);
        *result = std::move(operation);
        throw;
      }
      admission.set = known->of->set;  // not earlier: counting references costs as much as the rest of this block
      Begin(operation.get(), Operation::State::kSubmitted);
      if (!admission.large) by_ticket.Put(operation);
    }
  }
  if (operation && operation->admission.large) RunLargeBorrowed(this, operation);
  if (negotiation.AnyJoined()) world->group->RingOthers();
  if (operation && operation->done() && operation->status().ok()) {
    KeepAsSpare(this, std::move(operation));
  } else {
    *result = std::move(operation);
  }
  return true;
}

Status Operations::Defer(const OperationPtr& operation, OperationPtr before) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (is_broken || join) return RefuseAfter(this, *operation);
    deferred.push_back({operation, std::move(before)});
    Begin(operation.get(), Operation::State::kDeferred);
    has_deferred = true;
  }
  world->group->RingSelf();  // `before` may be done already
  return Status::Ok();
}

// The thread that ends `before` wakes the driver, see WakeForDeferred.
std::vector<OperationPtr> Operations::TakeDeferred() {
  std::vector<OperationPtr> taken;
  std::lock_guard<std::mutex> lock(mutex);
  taken.reserve(deferred.size());  // so that an exception cannot lose a removed operation
  const auto waits = [&taken](const Deferred& waiting) {
    if (!waiting.before->done()) return true;
    taken.push_back(waiting.operation);
    return false;
  };
  deferred.erase(std::stable_partition(deferred.begin(), deferred.end(), waits), deferred.end());
  has_deferred = !deferred.empty();
  return taken;
}

const char* CauseOf(const std::exception& thrown) {
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  return is_memory ? "it ran out of memory" : "an internal error";
}

void Operations::WakeForDeferred() const {
  if (has_deferred) world->group->RingSelf();
}

void Operations::MissLost() {
  has_missed_lost = true;
  if (!recorder) return;
  recorder->NoteEnd(FlightHeader::kEnded, broken_by, broken.message());
}

void Operations::RecordJoin(Operation* submitted) { Record(this, submitted); }

void Operations::AskForBells() {
  if (!negotiation.has_small()) return;
  std::vector<int> late;
  {
    std::lock_guard<std::mutex> lock(mutex);
    late = negotiation.AskForBells();
  }
  if (late.empty()) return;
  RingFence();
  for (const int rank : late) world->group->RingMember(world->layout.member_of[static_cast<size_t>(rank)]);
}

// The waiting thread and the driver may both try to take a small operation; TakeReady lets only one of them.
bool Operations::Poll(const OperationPtr& operation) {
  if (operation->done()) return true;
  const Admission& admission = operation->admission;
  if (operation->deferred() || !admission.cells || !negotiation.IsReady(admission)) return false;
  size_t looks;
  {
    std::lock_guard<std::mutex> lock(mutex);
    looks = operation->blocking ? LooksFor(*this, *operation) : 1;
    if (!negotiation.IsReady(admission) || !TakeIfReady(this, admission.ticket)) return operation->done();
  }
  if (!FinishTaken(this, operation, looks)) return operation->done();
  WakeForDeferred();
  return true;
}

bool Operations::CompleteReady() {
  if (!negotiation.has_small()) return false;
  std::vector<OperationPtr> taken;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const auto tickets = negotiation.ReadySmall();
    taken.reserve(tickets.size());  // so that an exception cannot lose a removed operation
    for (Ticket ticket : tickets) {
      if (OperationPtr operation = TakeIfReady(this, ticket)) taken.push_back(std::move(operation));
    }
  }
  for (const OperationPtr& operation : taken) FinishTaken(this, operation);
  return !taken.empty();
}

void Operations::CompleteSmall(Ticket ticket) {
  OperationPtr operation;
  {
    std::lock_guard<std::mutex> lock(mutex);
    operation = TakeSmall(this, ticket);
    if (operation && operation->admission.large) negotiation.TakeReady(ticket);
  }
  if (operation) FinishTaken(this, operation);
}

}  // namespace farandole
