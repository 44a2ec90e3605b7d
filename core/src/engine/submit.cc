#include "engine/submit.h"

#include <algorithm>

#include "common/clock.h"
#include "engine/small.h"

namespace farandole {
namespace {

struct Entered {
  Negotiation::Arrived arrived = Negotiation::Arrived::kCounted;
  bool wakes_driver = false;
};

Status RefuseAfter(Table* table, const World& world, const Operation& operation) {
  const std::string what = operation.Title() + " cannot start on rank " + std::to_string(world.rank);
  if (table->is_broken) {
    table->has_missed_lost = table->has_missed_lost || table->broken.code() == Code::kPeerLost;
    return {table->broken.code(), what + ": " + table->broken.message() + "; call shutdown and init to begin anew"};
  }
  return Invalid(what + ": this rank has joined; wait for join to end first");
}

// An invitation that came too late; there will be another one.
void Withdraw(Table* table, Ticket ticket) {
  table->operations.Take(ticket);
  table->in_flight.fetch_sub(1);
}

// A thread that waits by a handle looks for itself, and sets this bit before it sleeps (AskForBells).
bool WantsBell(const Operation& operation, bool polling) { return !polling && operation.request.done != nullptr; }

// Submission, copy and arrival are one step under the lock, see negotiation.h; but for the copy of a large one.
Status Insert(World* world, Table* table, const OperationPtr& operation, bool polling, Entered* entered) {
  std::lock_guard<std::mutex> lock(table->mutex);
  const bool has_joined = table->join && !operation->invited && !operation->deferred;
  if (table->is_broken || has_joined) return RefuseAfter(table, *world, *operation);
  Negotiation& negotiation = table->negotiation;
  Admission& admission = operation->admission;
  FRD_RETURN_IF_ERROR(negotiation.Submit(*operation, &admission));
  ++table->entered;
  table->operations.Put(operation);
  table->in_flight.fetch_add(1);
  if (admission.cells) {
    if (!admission.large) PutSmall(operation.get(), WantsBell(*operation, polling));
  } else if (admission.id >= 0) {
    entered->arrived = negotiation.Arrive(admission);
    const bool retired = entered->arrived == Negotiation::Arrived::kRetired;
    if (retired && !negotiation.Redescribe(admission.ticket)) Withdraw(table, admission.ticket);
    if (admission.inbox && !retired) {
      table->eager.push_back(operation);
      table->has_eager = entered->wakes_driver = true;
    }
  }
  if (!negotiation.outbox().empty()) {
    table->has_outgoing = true;
    entered->wakes_driver = true;
  }
  return Status::Ok();
}

// The log is full while some rank does not read it: perhaps this one, whose driver has to go on.
void Complete(Table* table, const Admission& admission) {
  if (table->negotiation.CompleteTogether(admission)) return;
  std::lock_guard<std::mutex> lock(table->mutex);
  table->negotiation.CompleteLater(admission);
}

// Wakes the ranks that sleep until all have put. The caller is the last to put: of two that put at the same time at
// least one sees both stamps, since each fences between its own stamp and its look. REQUIRES: RingFence since the put,
// then IsReady.
void RingForSmall(World* world, const Admission& admission, const ProcessSet& set) {
  for (int position = 0; position < set.size(); ++position) {
    if (position == set.position || !admission.cells->WantsBell(position)) continue;
    const auto rank = static_cast<size_t>(set.ranks[static_cast<size_t>(position)]);
    world->group->RingMember(world->layout.member_of[rank]);
  }
}

// This thread has put, or folded, the data of a large one without the lock.
void Release(World* world, Table* table, Ticket ticket) {
  bool wakes_driver;
  {
    std::lock_guard<std::mutex> lock(table->mutex);
    wakes_driver = table->negotiation.Release(ticket);
  }
  if (wakes_driver) world->group->RingSelf();
}

// Of a small operation that all have put, and that this thread may take. Null when it was given up, or was a call that
// is over now. Under the lock, where the result of one that is not large is folded, too, since the span may be
// another's as soon as the negotiation goes on.
OperationPtr TakeSmall(Table* table, Ticket ticket) {
  SmallCall* const call = table->operations.TakeCall(ticket);
  if (call != nullptr && !call->admission.large) {
    table->in_flight.fetch_sub(1);
    call->Take();
    return nullptr;
  }
  OperationPtr operation = call != nullptr ? call->Become() : table->operations.Take(ticket);
  if (operation && !operation->admission.large) FoldSmall(operation.get());
  return operation;
}

// Looks at least once. A look that is too early takes the line from the one who is about to write it, and who has to
// send for it once more; hence a pause before the first.
bool BecomesReady(const Negotiation& negotiation, const Admission& admission, int looks) {
  do {
    CpuPause();
    if (negotiation.IsReady(admission)) return true;
  } while (--looks > 0);
  return false;
}

// Null when another thread has taken it, it was given up, or was a call that is over now. Under the lock.
OperationPtr TakeIfReady(Table* table, Ticket ticket) {
  if (!table->negotiation.TakeReady(ticket)) return nullptr;
  OperationPtr operation = TakeSmall(table, ticket);
  if (!operation) table->negotiation.Release(ticket);
  return operation;
}

// After TakeIfReady or TakeSmall. Without the lock: who hears of it may submit.
void FinishTaken(World* world, Table* table, const OperationPtr& operation) {
  if (operation->admission.large) {
    FoldSmall(operation.get());
    Release(world, table, operation->admission.ticket);
  }
  table->in_flight.fetch_sub(1);
  operation->Complete(Status::Ok());
}

// Copies without the lock. The set cannot be removed before the admission is released, hence a reference from before.
void PutLarge(World* world, Table* table, SmallCall* call) {
  const ProcessSetPtr set = *call->members;
  call->Put();
  Release(world, table, call->admission.ticket);
  RingFence();
  if (table->negotiation.IsReady(call->admission)) RingForSmall(world, call->admission, *set);
}

}  // namespace

Status Enter(World* world, Table* table, const OperationPtr& operation, bool polling) {
  Entered entered;
  FRD_RETURN_IF_ERROR(Insert(world, table, operation, polling, &entered));
  const Admission& admission = operation->admission;
  if (admission.cells) {
    if (admission.large) {
      PutSmall(operation.get(), WantsBell(*operation, polling));
      Release(world, table, admission.ticket);
    }
    RingFence();
    if (table->negotiation.AnyJoined()) world->group->RingOthers();
    if (!table->negotiation.IsReady(admission)) return Status::Ok();
    RingForSmall(world, admission, *admission.set);
    if (CompleteIfReady(world, table, operation)) WakeForDeferred(world, *table);
    return Status::Ok();
  }
  const bool last = entered.arrived == Negotiation::Arrived::kLast && !admission.inbox;
  if (last) Complete(table, admission);
  if (last || (admission.id >= 0 && table->negotiation.AnyJoined())) world->group->RingOthers();
  if ((last || entered.wakes_driver) && !polling) world->group->RingSelf();
  return Status::Ok();
}

// All but the copy of a large one is one step under the lock: once the call is over, its set may be removed. The first
// looks are, too, for the others are mostly close, and giving the lock up and taking it again costs as much as their
// lines do.
bool Enter(World* world, Table* table, SmallCall* call, int looks) {
  {
    std::lock_guard<std::mutex> lock(table->mutex);
    if (table->is_broken || table->join || table->operations.has_call()) return false;
    Negotiation& negotiation = table->negotiation;
    call->members = negotiation.SubmitSmall(*call, &call->admission);
    if (call->members == nullptr) return false;
    ++table->entered;
    if (!call->admission.large) call->Put();
    if (!negotiation.outbox().empty()) table->has_outgoing = true;
    RingFence();
    if (!call->admission.large && BecomesReady(negotiation, call->admission, looks)) {
      RingForSmall(world, call->admission, **call->members);
      negotiation.TakeReady(call->admission.ticket);
      call->Take();
    } else {
      table->operations.Put(call);
      table->in_flight.fetch_add(1);
    }
  }
  if (call->admission.large) PutLarge(world, table, call);
  if (table->negotiation.AnyJoined()) world->group->RingOthers();
  return true;
}

Status Defer(World* world, Table* table, const OperationPtr& operation, OperationPtr before) {
  {
    std::lock_guard<std::mutex> lock(table->mutex);
    if (table->is_broken || table->join) return RefuseAfter(table, *world, *operation);
    operation->deferred = true;
    table->deferred.push_back({operation, std::move(before)});
    table->has_deferred = true;
    table->in_flight.fetch_add(1);
  }
  world->group->RingSelf();  // the one before may be done already
  return Status::Ok();
}

std::vector<OperationPtr> TakeDeferred(Table* table) {
  std::vector<OperationPtr> taken;
  std::lock_guard<std::mutex> lock(table->mutex);
  const auto waits = [&taken](const Deferred& waiting) {
    if (!waiting.before->done()) return true;
    taken.push_back(waiting.operation);
    return false;
  };
  table->deferred.erase(std::stable_partition(table->deferred.begin(), table->deferred.end(), waits),
                        table->deferred.end());
  table->has_deferred = !table->deferred.empty();
  return taken;
}

void WakeForDeferred(World* world, const Table& table) {
  if (table.has_deferred) world->group->RingSelf();
}

void AskForBells(Table* table) {
  if (!table->negotiation.has_small()) return;
  std::lock_guard<std::mutex> lock(table->mutex);
  table->negotiation.AskForBells();
}

bool CompleteIfReady(World* world, Table* table, const OperationPtr& operation) {
  {
    std::lock_guard<std::mutex> lock(table->mutex);
    const Admission& admission = operation->admission;
    if (!admission.cells || !table->negotiation.IsReady(admission) || !TakeIfReady(table, admission.ticket))
      return false;
  }
  FinishTaken(world, table, operation);
  return true;
}

bool CompleteIfReady(World* world, Table* table, SmallCall* call) {
  if (call->over() || !table->negotiation.IsReady(call->admission)) return call->over();
  const Ticket ticket = call->admission.ticket;
  {
    std::lock_guard<std::mutex> lock(table->mutex);
    if (call->over() || !table->negotiation.IsReady(call->admission) || !table->negotiation.TakeReady(ticket))
      return call->over();
    table->operations.TakeCall(ticket);
    if (!call->admission.large) call->Take();
  }
  if (call->admission.large) {
    call->Take();
    Release(world, table, ticket);
  }
  table->in_flight.fetch_sub(1);
  return true;
}

bool CompleteReady(World* world, Table* table) {
  if (!table->negotiation.has_small()) return false;
  std::vector<OperationPtr> taken;
  {
    std::lock_guard<std::mutex> lock(table->mutex);
    for (Ticket ticket : table->negotiation.ReadySmall()) {
      if (OperationPtr operation = TakeIfReady(table, ticket)) taken.push_back(std::move(operation));
    }
  }
  for (const OperationPtr& operation : taken) FinishTaken(world, table, operation);
  return !taken.empty();
}

void CompleteSmall(World* world, Table* table, Ticket ticket) {
  OperationPtr operation;
  {
    std::lock_guard<std::mutex> lock(table->mutex);
    operation = TakeSmall(table, ticket);
  }
  if (operation) FinishTaken(world, table, operation);
}

}  // namespace farandole
