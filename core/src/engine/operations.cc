#include "engine/operations.h"

#include <algorithm>

#include "algorithms/choose_path.h"
#include "common/clock.h"

namespace farandole {

namespace {

struct Entered {
  Negotiation::Arrived arrived = Negotiation::Arrived::kCounted;
  bool wakes_driver = false;
};

Status RefuseAfter(Operations* operations, const World& world, const Operation& operation) {
  const std::string what = operation.Title() + " cannot start on rank " + std::to_string(world.rank);
  if (operations->is_broken) {
    if (operations->broken.code() == Code::kPeerLost) MissLost(operations);
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

// The shapes of its tensors, as many as a text holds.
std::string ShapesOf(const Request& request) {
  std::string shapes;
  for (const Tensor& tensor : request.tensors) {
    shapes += (shapes.empty() ? "" : ", ") + ToString(tensor.shape);
    if (shapes.size() >= FlightText::kBytes) break;
  }
  return shapes;
}

// Unnamed operations have names of ours, which say nothing to readers: their numbers do.
void Record(Operations* operations, Operation* operation) {
  FlightRecorder* const recorder = operations->recorder.get();
  if (recorder == nullptr) return;
  const Request& request = operation->request;
  FlightFacts facts{request.kind, DType::kFloat32, request.reduce, request.process_set, 0, 0};
  if (!request.tensors.empty()) facts.dtype = request.tensors[0].dtype;
  facts.tensors = static_cast<uint32_t>(request.tensors.size());
  facts.bytes = BytesOf(request);
  const auto texts = [&request] { return std::make_pair(std::string_view(request.name), ShapesOf(request)); };
  FlightLabel join;
  FlightLabel* const label = operation->admission.label != nullptr ? operation->admission.label : &join;
  const int64_t number = operation->named() ? -1 : operation->sequence_number();
  operation->record = recorder->Begin(label, facts, request.site, number, texts);
}

// Drops an invitation that came too late; another one will come.
void Withdraw(Operations* operations, Ticket ticket) {
  const OperationPtr dropped = operations->by_ticket.Take(ticket);
  if (dropped && dropped->record != nullptr) dropped->record->End(Ticks());
  operations->in_flight.fetch_sub(1);
}

// A thread that waits by a handle polls, and sets this bit before it sleeps (AskForBells).
bool WantsBell(const Operation& operation, bool polling) { return !polling && operation.request.done != nullptr; }

// Submission, copy and arrival are one step under the lock, see negotiation.h, except for the copy of a large
// operation.
Status Insert(World* world, Operations* operations, const OperationPtr& operation, bool polling, Entered* entered) {
  std::lock_guard<std::mutex> lock(operations->mutex);
  const bool has_joined = operations->join && !operation->invited && !operation->deferred;
  if (operations->is_broken || has_joined) return RefuseAfter(operations, *world, *operation);
  Negotiation& negotiation = operations->negotiation;
  Admission& admission = operation->admission;
  FRD_RETURN_IF_ERROR(negotiation.Submit(*operation, &admission));
  ++operations->entered;
  if (!operation->invited) operations->CountBytes(BytesOf(operation->request));
  operations->by_ticket.Put(operation);
  operations->in_flight.fetch_add(1);
  Record(operations, operation.get());
  if (admission.cells) {
    if (!admission.large) PutSmall(operation.get(), WantsBell(*operation, polling));
  } else if (admission.id >= 0) {
    entered->arrived = negotiation.Arrive(admission);
    const bool retired = entered->arrived == Negotiation::Arrived::kRetired;
    if (retired && !negotiation.Redescribe(admission.ticket)) Withdraw(operations, admission.ticket);
    if (admission.inbox && !retired) {
      operations->eager.push_back(operation);
      operations->has_eager = entered->wakes_driver = true;
    }
  }
  if (!negotiation.outbox().empty()) entered->wakes_driver = true;
  return Status::Ok();
}

// The log is full while some rank does not read it. That may be this one, so its driver has to go on.
void Complete(Operations* operations, const Admission& admission) {
  if (operations->negotiation.CompleteTogether(admission)) return;
  std::lock_guard<std::mutex> lock(operations->mutex);
  operations->negotiation.CompleteLater(admission);
}

// Wakes the ranks that sleep until all have put. The caller has seen all stamps. Of two ranks that put at the same time
// at least one sees both stamps, since each has a fence between its own stamp and its look. REQUIRES: RingFence since
// the put, then IsReady.
void RingForSmall(World* world, const Admission& admission, const ProcessSet& set) {
  for (int position = 0; position < set.size(); ++position) {
    if (position == set.position || !admission.cells->WantsBell(position)) continue;
    const auto rank = static_cast<size_t>(set.ranks[static_cast<size_t>(position)]);
    world->group->RingMember(world->layout.member_of[rank]);
  }
}

// Called when this thread has put, or folded, the data of a large operation without the lock.
void Release(World* world, Operations* operations, Ticket ticket) {
  bool wakes_driver;
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    wakes_driver = operations->negotiation.Release(ticket);
  }
  if (wakes_driver) world->group->RingSelf();
}

// Takes a small operation for which all have put their data. Returns null when it was given up, or was a call that is
// over now. Under the lock, it also folds an operation that is not large, since the span may be given to another as
// soon as the negotiation goes on.
OperationPtr TakeSmall(Operations* operations, Ticket ticket) {
  SmallCall* const call = operations->by_ticket.TakeCall(ticket);
  if (call != nullptr && !call->admission.large) {
    operations->in_flight.fetch_sub(1);
    call->Take(/*pauses=*/0);
    return nullptr;
  }
  OperationPtr operation = call != nullptr ? call->Become() : operations->by_ticket.Take(ticket);
  if (operation && !operation->admission.large) FoldSmall(operation.get());
  return operation;
}

// Comes after the put, so that the data travel meanwhile.
void Record(FlightRecorder* recorder, SmallCall* call) {
  if (recorder == nullptr) return;
  const auto texts = [call] { return std::make_pair(call->given_name(), call->Shape()); };
  call->record = recorder->Begin(call->admission.label, call->Facts(), call->site(), call->sequence_number(), texts);
}

// Looks at least once. A pause before the first look would cost more than the looks that come too early: two ranks take
// 0.18 us for 4 bytes with it and 0.145 without (near cores of an AMD EPYC, Zen 4; far ones 0.25 and 0.24).
bool BecomesReady(const Negotiation& negotiation, const Admission& admission, int looks) {
  if (negotiation.IsReady(admission, Share::kHalf)) return true;
  while (--looks > 0) {
    CpuPause();
    if (negotiation.IsReady(admission, Share::kHalf)) return true;
  }
  return false;
}

// Takes the operation if it is ready. Returns null when another thread has taken it, when it was given up, or when it
// was a call that is over now. Under the lock.
OperationPtr TakeIfReady(Operations* operations, Ticket ticket) {
  if (!operations->negotiation.TakeReady(ticket)) return nullptr;
  OperationPtr operation = TakeSmall(operations, ticket);
  if (!operation) operations->negotiation.Release(ticket);
  return operation;
}

// Comes after TakeIfReady or TakeSmall, and without the lock, since the done function may submit.
void FinishTaken(World* world, Operations* operations, const OperationPtr& operation) {
  if (operation->admission.large) {
    FoldSmall(operation.get());
    Release(world, operations, operation->admission.ticket);
  }
  operations->in_flight.fetch_sub(1);
  operation->Complete(Status::Ok());
}

struct PutOutcome {
  bool is_ready = false;
  bool has_put_all = true;  // false: half, which is enough for the other of two ranks
};

// Puts the data, and looks whether the others come. Of two ranks, one that looks puts only the half that the other
// folds, and the rest if that does not come, until it comes. It looks longer then, up to twice as long as it would take
// to put the rest: two ranks take 2.0 us for 32 KiB, by the median, and 2.2 if they do not.
PutOutcome PutLarge(Operations* operations, SmallCall* call) {
  const bool puts_half = operations->pauses > 0 && call->CanPutHalf();
  puts_half ? call->PutHalf() : call->Put();
  RingFence();
  const int looks = operations->pauses + (puts_half ? static_cast<int>(call->size_bytes() >> 10) : 0);
  if (BecomesReady(operations->negotiation, call->admission, looks)) return {true, !puts_half};
  if (!puts_half) return {};
  const auto is_ready = [&] { return operations->negotiation.IsReady(call->admission, Share::kHalf); };
  if (!call->PutRest(is_ready)) return {true, false};
  RingFence();
  return {is_ready()};
}

// Puts a large call, which is entered, and takes its result if the others come within the looks, all without the lock
// and in one reservation: each further turn of the lock would cost 0.1 us. Another thread may make the call an
// operation meanwhile, which ends here, too, or gets to know what is done. Sleeping ranks are woken when nothing that
// they need is missing.
void RunLarge(World* world, Operations* operations, SmallCall* call) {
  const Ticket ticket = call->admission.ticket;
  const auto [is_ready, has_put_all] = PutLarge(operations, call);
  const bool rings_first = is_ready && has_put_all;
  if (rings_first) RingForSmall(world, call->admission, **call->members);
  const bool taken = is_ready && call->Take(operations->pauses, /*at_once=*/true);
  if (is_ready && !rings_first) {
    RingFence();
    RingForSmall(world, call->admission, **call->members);
  }
  OperationPtr operation;
  bool wakes_driver;
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    if (taken && operations->by_ticket.TakeCall(ticket) == nullptr) operation = operations->by_ticket.Take(ticket);
    if (is_ready && !taken) call->NoteHalfFolded();
    wakes_driver = operations->negotiation.Release(ticket, taken);
  }
  if (wakes_driver) world->group->RingSelf();
  if (!taken) return;
  operations->in_flight.fetch_sub(1);
  if (operation) operation->Complete(Status::Ok());
}

}  // namespace

Status Enter(World* world, Operations* operations, const OperationPtr& operation, bool polling) {
  Entered entered;
  FRD_RETURN_IF_ERROR(Insert(world, operations, operation, polling, &entered));
  const Admission& admission = operation->admission;
  if (admission.cells) {
    if (admission.large) {
      PutSmall(operation.get(), WantsBell(*operation, polling));
      Release(world, operations, admission.ticket);
    }
    RingFence();
    if (operations->negotiation.AnyJoined()) world->group->RingOthers();
    if (!operations->negotiation.IsReady(admission, Share::kHalf)) return Status::Ok();
    RingForSmall(world, admission, *admission.set);
    if (CompleteIfReady(world, operations, operation)) WakeForDeferred(world, *operations);
    return Status::Ok();
  }
  const bool last = entered.arrived == Negotiation::Arrived::kLast && !admission.inbox;
  if (last) Complete(operations, admission);
  if (last || (admission.id >= 0 && operations->negotiation.AnyJoined())) world->group->RingOthers();
  if ((last || entered.wakes_driver) && !polling) world->group->RingSelf();
  return Status::Ok();
}

// Everything except the copy of a large call is one step under the lock: once the call is over, its set may be removed.
// The first looks are under the lock, too: the others are mostly about to arrive, and to release and retake the lock
// costs as much as their cache lines do.
bool Enter(World* world, Operations* operations, SmallCall* call) {
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    if (operations->is_broken || operations->join || operations->by_ticket.has_call()) return false;
    Negotiation& negotiation = operations->negotiation;
    Name* const name = negotiation.SubmitSmall(*call, &call->admission);
    if (name == nullptr) return false;
    call->members = &name->of->set;
    ++operations->entered;
    operations->CountBytes(call->size_bytes());
    if (!call->admission.large) call->Put();
    RingFence();
    Record(operations->recorder.get(), call);
    if (!call->admission.large) call->PrepareFold();
    const bool at_once = !call->admission.large && BecomesReady(negotiation, call->admission, operations->pauses);
    negotiation.Settle(name, at_once, &call->admission);
    if (at_once) {
      RingForSmall(world, call->admission, **call->members);
      call->Take(operations->pauses, /*at_once=*/true);
    } else {
      operations->by_ticket.Put(call);
      operations->in_flight.fetch_add(1);
    }
  }
  if (call->admission.large) RunLarge(world, operations, call);
  if (operations->negotiation.AnyJoined()) world->group->RingOthers();
  return true;
}

Status Defer(World* world, Operations* operations, const OperationPtr& operation, OperationPtr before) {
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    if (operations->is_broken || operations->join) return RefuseAfter(operations, *world, *operation);
    operation->deferred = true;
    operations->deferred.push_back({operation, std::move(before)});
    operations->has_deferred = true;
    operations->in_flight.fetch_add(1);
  }
  world->group->RingSelf();  // the operation before may be done already
  return Status::Ok();
}

// Each waits for another operation of this rank; the thread that ends that one wakes the driver.
std::vector<OperationPtr> TakeDeferred(Operations* operations) {
  std::vector<OperationPtr> taken;
  std::lock_guard<std::mutex> lock(operations->mutex);
  const auto waits = [&taken](const Deferred& waiting) {
    if (!waiting.before->done()) return true;
    taken.push_back(waiting.operation);
    return false;
  };
  operations->deferred.erase(std::stable_partition(operations->deferred.begin(), operations->deferred.end(), waits),
                             operations->deferred.end());
  operations->has_deferred = !operations->deferred.empty();
  return taken;
}

void WakeForDeferred(World* world, const Operations& operations) {
  if (operations.has_deferred) world->group->RingSelf();
}

void MissLost(Operations* operations) {
  operations->has_missed_lost = true;
  if (!operations->recorder) return;
  operations->recorder->NoteEnd(FlightHeader::kEnded, operations->broken_by, operations->broken.message());
}

void RecordJoin(Operations* operations, Operation* join) { Record(operations, join); }

void AskForBells(Operations* operations) {
  if (!operations->negotiation.has_small()) return;
  std::lock_guard<std::mutex> lock(operations->mutex);
  operations->negotiation.AskForBells();
}

// Two threads may take a small operation: the one that waits for it, and the driver. The ticket decides.
bool CompleteIfReady(World* world, Operations* operations, const OperationPtr& operation) {
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    const Admission& admission = operation->admission;
    if (!admission.cells || !operations->negotiation.IsReady(admission) || !TakeIfReady(operations, admission.ticket))
      return false;
  }
  FinishTaken(world, operations, operation);
  return true;
}

bool CompleteIfReady(World* world, Operations* operations, SmallCall* call) {
  if (call->over() || !operations->negotiation.IsReady(call->admission)) return call->over();
  const Ticket ticket = call->admission.ticket;
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    if (call->over() || !operations->negotiation.IsReady(call->admission) || !operations->negotiation.TakeReady(ticket))
      return call->over();
    operations->by_ticket.TakeCall(ticket);
    if (!call->admission.large) call->Take(operations->pauses);
  }
  if (call->admission.large) {
    call->Take(operations->pauses);
    Release(world, operations, ticket);
  }
  operations->in_flight.fetch_sub(1);
  return true;
}

bool CompleteReady(World* world, Operations* operations) {
  if (!operations->negotiation.has_small()) return false;
  std::vector<OperationPtr> taken;
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    for (Ticket ticket : operations->negotiation.ReadySmall()) {
      if (OperationPtr operation = TakeIfReady(operations, ticket)) taken.push_back(std::move(operation));
    }
  }
  for (const OperationPtr& operation : taken) FinishTaken(world, operations, operation);
  return !taken.empty();
}

void CompleteSmall(World* world, Operations* operations, Ticket ticket) {
  OperationPtr operation;
  {
    std::lock_guard<std::mutex> lock(operations->mutex);
    operation = TakeSmall(operations, ticket);
  }
  if (operation) FinishTaken(world, operations, operation);
}

// ---- names of unnamed operations

namespace {

// The unnamed operations of one signature take at most this many names in turn. Each name of a small one has memory
// for its data. Larger ones have fewer names, so that less memory goes through the caches. 64 KB with 64, 16 and 4
// names, two ranks, microseconds: one after the other 6.8, 4.6, 4.2; each of 64 in flight 7.8, 6.5, 7.1, by the median
// 9.9, 10.4, 13.2.
constexpr size_t kMostNames = 64;
constexpr int64_t kNamesBytes = 1 << 20;  // of the data of one rank
constexpr size_t kMostWindows = 1024;     // signatures remembered

size_t NamesFor(const Signature& signature) {
  const int64_t bytes = signature.TotalBytes();
  if (signature.kind != OpKind::kAllreduce || bytes > CellLimitBytes(2)) return kMostNames;
  return std::min(kMostNames, static_cast<size_t>(kNamesBytes / std::max(bytes, int64_t{1})));
}

// Of calls that wait, no two are in flight, unless they come from several threads.
size_t NamesForAwaited(const Signature& signature) {
  const bool may_have_cells =
      signature.kind == OpKind::kAllreduce && signature.TotalBytes() <= CellLimitBytes(2, /*awaited=*/true);
  return may_have_cells ? 1 : NamesFor(signature);
}

// Returns null when the operation is done or destroyed.
OperationPtr InFlight(const std::weak_ptr<Operation>& operation) {
  OperationPtr found = operation.lock();
  return found && !found->done() ? found : nullptr;
}

}  // namespace

OperationPtr Naming::Name(const OperationPtr& operation) {
  const Request& request = operation->request;
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t sequence_number = next_sequence_number_[request.process_set]++;
  if (ChangesSets(request.kind)) {
    // A new name each time, so that rank 0 always gets its description.
    operation->SetName("#sets." + std::to_string(sequence_number), sequence_number);
    return nullptr;
  }
  Place& place = PlaceFor(request, sequence_number, operation->awaited);
  operation->awaited = latest_window_->size() == 1;
  OperationPtr before = InFlight(place.latest);
  place.latest = operation;
  operation->SetName(place.name, sequence_number);
  return before;
}

void Naming::Widen(const Signature& signature) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto window = windows_.find(Fingerprint(signature));
  if (window != windows_.end() && window->second.size() == 1) window->second.resize(NamesFor(signature));
}

// A window is mostly that of the call before.
template <typename AnyRequest>
Naming::Place& Naming::PlaceFor(const AnyRequest& request, int64_t sequence_number, bool awaited) {
  if (latest_window_ == nullptr || !Means(request, latest_signature_)) {
    if (windows_.size() >= kMostWindows) ForgetIdleWindows();
    latest_signature_ = SignatureOf(request);
    latest_window_ = &windows_[Fingerprint(latest_signature_)];
    if (latest_window_->empty()) latest_window_->resize(NamesForAwaited(latest_signature_));
  }
  if (!awaited && latest_window_->size() == 1) latest_window_->resize(NamesFor(latest_signature_));
  const size_t at = static_cast<size_t>(sequence_number) % latest_window_->size();
  Place& place = (*latest_window_)[at];
  if (place.name.empty()) place.name = "#" + std::to_string(Fingerprint(latest_signature_)) + "." + std::to_string(at);
  return place;
}

Naming::Turn::Turn(Naming* naming, const RequestView& request) : lock_(naming->mutex_) {
  const auto next = naming->next_sequence_number_.find(request.process_set);
  if (next == naming->next_sequence_number_.end()) return;
  Place& place = naming->PlaceFor(request, next->second, /*awaited=*/true);
  if (InFlight(place.latest)) return;
  next_ = &next->second;
  place_ = &place;
}

// A signature that returns later gets a new window. That is safe, since none of its names is in flight.
void Naming::ForgetIdleWindows() {
  const auto is_in_use = [](const Place& place) { return InFlight(place.latest) != nullptr; };
  for (auto it = windows_.begin(); it != windows_.end();) {
    const Window& window = it->second;
    it = std::any_of(window.begin(), window.end(), is_in_use) ? std::next(it) : windows_.erase(it);
  }
  latest_window_ = nullptr;
}

SequenceNumbers Naming::sequence_numbers() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_sequence_number_;
}

// The highest number of any rank holds for all, so that the next number is new on every rank.
void Naming::CatchUp(const SequenceNumbers& sequence_numbers) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [set, sequence_number] : sequence_numbers)
    next_sequence_number_[set] = std::max(next_sequence_number_[set], sequence_number);
}

void Naming::Forget(int set) {
  std::lock_guard<std::mutex> lock(mutex_);
  next_sequence_number_.erase(set);
}

}  // namespace farandole
