#include "controller/negotiation.h"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

// Why the operation cannot begin on this rank; kOk when it can.
Status Refusal(int set, const SetNames* names, int rank) {
  if (names == nullptr || !names->IsOpen()) return NoProcessSet(set, rank);
  if (!names->set->contains_me()) {
    return Invalid("rank ", rank, " is not in process set ", set, " and cannot take part in its operations");
  }
  return Status::Ok();
}

Status AlreadyInFlight(const Description& description, int rank) {
  const std::string first = description.site.empty() ? "" : " (submitted at " + description.site + ")";
  return Invalid(description.Title(), " is already in flight on rank ", rank, first,
                 "; wait for it before you submit that name again, or give it another name");
}

// Notes what differs from the use of the name before.
void Note(Name* name, const NamedOperation& operation, Admission* admission) {
  name->description.sequence_number = admission->sequence_number = operation.sequence_number();
  if (name->description.site != operation.site()) {  // nearly always the same
    name->description.site = operation.site();
    name->label.site = 0;
  }
  admission->label = &name->label;
}

// ---- messages that change no state here

Status OnAbort(ByteReader* reader, const Layout& world, NegotiationEvents* events) {
  const auto aborted = Decode<Aborted>(reader);
  if (!reader->AtEnd()) return Unreadable(kCoordinatorRank);
  // An abort without a known reason is still one; it must not pass for a success.
  const auto code = static_cast<Code>(aborted.code);
  Status status(IsKnown(code) && code != Code::kOk ? code : Code::kInternal, aborted.text);
  const bool known = aborted.culprit >= 0 && aborted.culprit < world.size();
  events->push_back(
      NegotiationEvent::OfRank(NegotiationEvent::kAbort, known ? aborted.culprit : -1, std::move(status)));
  return Status::Ok();
}

Status OnStacks(ByteReader* reader, const Layout& world, NegotiationEvents* events) {
  auto answer = Decode<Answered>(reader);
  if (!reader->AtEnd() || answer.rank < 0 || answer.rank >= world.size()) return Unreadable(kCoordinatorRank);
  events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAnswered, answer.rank));
  events->back().answer = std::move(answer.text);
  return Status::Ok();
}

Status OnAbsent(ByteReader* reader, const Layout& world, NegotiationEvents* events) {
  NegotiationEvent event;
  event.kind = NegotiationEvent::kAbsent;
  event.absences = Decode<Absent>(reader).absences;
  bool are_ranks = reader->AtEnd();
  for (const Absence& absence : event.absences) {
    for (const std::vector<int64_t>& ranks : {absence.ranks, absence.here}) {
      are_ranks = are_ranks && std::all_of(ranks.begin(), ranks.end(),
                                           [&](int64_t rank) { return rank >= 0 && rank < world.size(); });
    }
  }
  if (!are_ranks) return Unreadable(kCoordinatorRank);
  events->push_back(std::move(event));
  return Status::Ok();
}

}  // namespace

// ---- submitting

Negotiation::Negotiation(const Layout& layout, int rank, std::byte* memory, const Limits& limits)
    : limits_(limits),
      group_(layout, rank),
      memory_(memory, group_.member(), group_.size(), limits.log_entries),
      names_(group_),
      in_flight_(memory_.counters, memory_.spans, limits.one_phase_bytes),
      unknown_(group_, names_),
      join_(group_, &memory_, names_, in_flight_, &outbox_),
      leader_(group_, &memory_, names_, &outbox_),
      log_(group_, &memory_, &names_, &in_flight_, &join_, &outbox_),
      messages_(group_, &names_, &in_flight_, &unknown_, &join_, &leader_),
      unlogged_(&memory_.log) {}

Status Negotiation::Submit(const DescribedOperation& operation, Admission* admission) {
  SetNames* const names = names_.Names(operation.set());
  FRD_RETURN_IF_ERROR(Refusal(operation.set(), names, group_.rank()));
  Name* const name = names_.FindOrAdd(names, operation.name());
  if (name->in_flight) return AlreadyInFlight(name->description, group_.rank());
  if (name->id < 0 || !operation.Means(name->known)) return Describe(operation, name, admission);
  Note(name, operation, admission);
  if (name->has_counts) name->description.counts = operation.Counts();
  if (name->next_use == limits_.most_uses) outbox_.Send(MessageKind::kStuck, name->id);
  // Nothing throws from here on.
  if (admission->set != names->set) admission->set = names->set;  // a look costs less than counting references
  admission->ticket = in_flight_.Begin(name);
  in_flight_.Count(name, join_.round(), admission);
  if (name->has_counts) {
    const std::vector<int64_t>& counts = name->description.counts;
    const size_t first = static_cast<size_t>(name->set().position) * counts.size();
    memory_.spans.WriteCounts(name->span, name->next_use - 1, first, counts);
  }
  return Status::Ok();
}

// An id of another signature stays as it is until the coordinator retires it: the others may still use it. This rank
// only lets go of it, and describes what it means now.
Status Negotiation::Describe(const DescribedOperation& operation, Name* name, Admission* admission) {
  Description description = operation.Describe();
  const Signature& signature = description.signature;
  const bool removes = signature.kind == OpKind::kRemoveProcessSet;
  if (removes) FRD_RETURN_IF_ERROR(CanRemove(static_cast<int>(signature.ranks.at(0))));
  outbox_.Send(Encode(MessageKind::kDescribe, description));
  // Nothing throws from here on.
  if (removes) names_.Close(signature);
  admission->ticket = in_flight_.Begin(name);
  admission->set = name->of->set;
  name->label.name = name->label.site = 0;
  admission->label = &name->label;
  name->description = std::move(description);
  name->id = -1;
  return Status::Ok();
}

// This rank lets go of the name's id, so that its next use is described, behind the refusal.
bool Negotiation::Refuse(const Description& refusal) {
  const SetNames* const names = names_.Names(refusal.signature.set);
  if (names == nullptr || !names->IsOpen() || !names->set->contains_me()) return false;
  if (Name* const name = names->Find(refusal.name)) {
    if (name->in_flight) return false;
    name->id = -1;
  }
  outbox_.Send(Encode(MessageKind::kDescribe, refusal));
  return true;
}

// Takes operations whose name is known. Everything else is left to Submit.
Name* Negotiation::SubmitSmall(const NamedOperation& operation, Admission* admission) {
  const SetNames* const names = names_.Names(operation.set());
  if (names == nullptr || !names->IsOpen() || !names->set->contains_me()) return nullptr;
  Name* const name = names->Find(operation.name());
  if (name == nullptr || !name->small() || name->in_flight || name->id < 0 || !operation.Means(name->known))
    return nullptr;
  Note(name, operation, admission);
  if (name->next_use == limits_.most_uses) outbox_.Send(MessageKind::kStuck, name->id);
  in_flight_.CountSmall(name, admission);
  return name;
}

Negotiation::Arrived Negotiation::Arrive(const Admission& admission) {
  const int id = admission.id;
  const int sharers = names_.sharers_of(id);
  const ArrivalCounters::Arrival arrival = memory_.counters.Arrive(id, admission.stamp(), sharers);
  if (arrival.retired) return Arrived::kRetired;
  if (!arrival.last) return Arrived::kCounted;
  if (admission.sequence_number < 0) return Arrived::kLast;
  const std::vector<int> members = group_.MembersIn(*admission.set);
  const bool all_mean = std::all_of(members.begin(), members.end(), [&](int member) {
    return memory_.counters.LatestOf(member, id) == admission.stamp();
  });
  if (all_mean) return Arrived::kLast;
  // After a disagreement the sequence numbers of the ranks may differ by a window. Then the arrivals do not count, and
  // the coordinator pairs the operations by their sequence numbers.
  memory_.counters.TakeBack(id, sharers);
  outbox_.Send(MessageKind::kStuck, id);
  return Arrived::kCounted;
}

// The arrival was not counted, so this rank describes the operation anew.
bool Negotiation::Redescribe(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  name->id = -1;
  if (join_.joined()) {
    in_flight_.End(name);
    return false;
  }
  in_flight_.Uncount(name);
  outbox_.Send(Encode(MessageKind::kDescribe, name->description));
  return true;
}

bool Negotiation::CompleteTogether(const Admission& admission) {
  if (admission.set->local()) return memory_.log.TryAppend({LogKind::kReady, admission.id, 0, admission.set->id});
  memory_.log.PushCompleted(admission.id);
  return true;
}

void Negotiation::CompleteLater(const Admission& admission) {
  unlogged_.AppendLater({LogKind::kReady, admission.id, 0, admission.set->id});
}

bool Negotiation::Release(Ticket ticket, bool taken) {
  Name* const name = in_flight_.Find(ticket);
  bool wakes_driver = in_flight_.Release(ticket, taken);
  if (name != nullptr && taken) wakes_driver |= log_.ForgetIfRetiring(name);
  return wakes_driver;
}

void Negotiation::EndEarly(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  in_flight_.End(name);
  log_.ForgetIfRetiring(name);
}

// ---- what others say

bool Negotiation::HasNews() const {
  return log_.HasNews() || !unlogged_.empty() || messages_.HasWaiting() || join_.joined() || leader_.HasNews();
}

bool Negotiation::Advance(NegotiationEvents* events) {
  bool moved = log_.ReleaseFinished(events);
  if (unlogged_.AppendWaiting()) {
    outbox_.Ring();
    moved = true;
  }
  if (leader_.Advance()) moved = true;
  const uint64_t before = log_.head();
  do {
    log_.Read(events);
  } while (messages_.ReadWaiting(events));
  if (log_.head() != before) log_.PublishHead();
  const size_t count = events->size();
  if (join_.takes_part()) join_.Invite(log_.head(), events);
  return moved || log_.head() != before || events->size() != count;
}

Status MessageReader::Read(const Bytes& message, NegotiationEvents* events) {
  bool early = HasWaiting();
  Status status;
  if (!early) status = Handle(message, events, false, &early);
  if (early) waiting_.push_back(message);
  return status;
}

bool MessageReader::ReadWaiting(NegotiationEvents* events) {
  bool handled = false;
  while (HasWaiting()) {
    bool early = false;
    const Status status = Handle(waiting_.front(), events, true, &early);
    if (early) break;
    if (!status.ok()) {
      const Status broken = Unreadable(kCoordinatorRank);
      events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAbort, -1, broken));
    }
    waiting_.pop_front();
    handled = true;
  }
  return handled;
}

// *early: the message refers to log entries that this rank has not read: the one that adds its process set, or the one
// that ends the name's use in flight. log_is_read: the log is read as far as it can be understood without more
// messages.
Status MessageReader::Handle(const Bytes& message, NegotiationEvents* events, bool log_is_read, bool* early) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  if (kind == MessageKind::kAssign) return OnAssign(&reader, events);
  if (kind == MessageKind::kInvite) return OnInvite(&reader, events, log_is_read, early);
  if (kind == MessageKind::kError) return OnError(&reader, events);
  if (kind == MessageKind::kLead) return leader_.OnLead(&reader, early);
  if (kind == MessageKind::kReady) return leader_.OnReady(&reader);
  if (kind == MessageKind::kJoinResult) return OnJoinResult(&reader);
  if (kind == MessageKind::kStacks) return OnStacks(&reader, group_.world(), events);
  if (kind == MessageKind::kAbsent) return OnAbsent(&reader, group_.world(), events);
  if (kind == MessageKind::kAbort) return OnAbort(&reader, group_.world(), events);
  return OnIdMessage(kind, &reader, events);
}

Status MessageReader::OnAssign(ByteReader* reader, NegotiationEvents* events) {
  const auto assignment = Decode<Assignment>(reader);
  if (!reader->AtEnd()) return Unreadable(kCoordinatorRank);
  Name* const name = names_.Find(assignment.set, assignment.name);
  const bool described = name != nullptr && name->in_flight && !name->counted && name->id < 0;
  if (!described || !Assign(name, assignment)) return Unreadable(kCoordinatorRank);
  if (!assignment.names_differ) return Status::Ok();
  events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kNamesDiffer, kCoordinatorRank));
  events->back().description = name->description;
  return Status::Ok();
}

// Gives the name its id. Returns false for an impossible assignment.
bool MessageReader::Assign(Name* name, const Assignment& assignment) {
  if (!names_.Assign(name, assignment)) return false;
  unknown_.Open(name, assignment.serial);
  return true;
}

// This rank has joined, so it did not describe the operation; it is in flight here all the same.
Status MessageReader::OnInvite(ByteReader* reader, NegotiationEvents* events, bool log_is_read, bool* early) {
  auto invited = Decode<Invited>(reader);
  Description& description = invited.description;
  SetNames* const names = names_.Names(description.signature.set);
  if (!reader->AtEnd() || !join_.takes_part()) return Unreadable(kCoordinatorRank);
  *early = names == nullptr && names_.IsFutureSet(description.signature.set);
  if (*early) return Status::Ok();
  if (names == nullptr || !names->set->contains_me()) return Unreadable(kCoordinatorRank);
  if (!FitsSet(description, names->set->size(), group_.world().size())) return Unreadable(kCoordinatorRank);
  Name* const name = names_.FindOrAdd(names, description.name);
  // The log says how that use ends, except for a small one that the others have completed: an incomplete one would have
  // been retired in the log before anybody could describe the operation anew. The driver completes a large one.
  if (name->in_flight && log_is_read) TakeIfAllHavePut(name, events);
  *early = name->in_flight;
  if (*early) return Status::Ok();
  name->description = description;
  name->id = -1;
  if (!Assign(name, invited.assignment)) return Unreadable(kCoordinatorRank);
  events->push_back(NegotiationEvent::About(NegotiationEvent::kInvited, in_flight_.Begin(name)));
  events->back().description = std::move(description);
  return Status::Ok();
}

void MessageReader::TakeIfAllHavePut(Name* name, NegotiationEvents* events) {
  if (!name->counted || !name->small() || in_flight_.IsLarge(*name)) return;
  if (in_flight_.AllHavePut(*name)) in_flight_.EndWith(NegotiationEvent::kTake, name, events);
}

Status MessageReader::OnError(ByteReader* reader, NegotiationEvents* events) {
  const auto failure = Decode<Failure>(reader);
  const bool refuses = failure.code == Code::kMismatch || failure.code == Code::kInvalid;  // and the job goes on
  if (!reader->AtEnd() || !refuses) return Unreadable(kCoordinatorRank);
  Name* const name = names_.Find(failure.set, failure.name);
  if (name == nullptr || !name->in_flight) return Unreadable(kCoordinatorRank);
  if (name->counted || name->id >= 0) return Unreadable(kCoordinatorRank);  // only what was described can be refused
  const Signature& signature = name->description.signature;
  if (signature.kind == OpKind::kRemoveProcessSet) names_.Reopen(signature);
  in_flight_.EndWith(NegotiationEvent::kFailed, name, events);
  events->back().status = Status::OfKinds(failure.code, failure.text, failure.kinds);
  names_.EraseIfIdle(name);
  return Status::Ok();
}

Status MessageReader::OnJoinResult(ByteReader* reader) {
  auto result = Decode<JoinResult>(reader);
  if (!reader->AtEnd() || !join_.OnResult(std::move(result))) return Unreadable(kCoordinatorRank);
  return Status::Ok();
}

Status MessageReader::OnIdMessage(MessageKind kind, ByteReader* reader, NegotiationEvents* events) {
  const auto message = Decode<IdMessage>(reader);
  if (!reader->AtEnd() || !IsId(message.id)) return Unreadable(kCoordinatorRank);
  if (kind == MessageKind::kJoined && join_.OnJoined()) return Status::Ok();
  if (kind == MessageKind::kOpen && join_.OnOpen(message.id, message.value)) return Status::Ok();
  if (kind == MessageKind::kTell && message.id < group_.world().size()) {
    events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAsked, message.id));
    return Status::Ok();
  }
  if (kind == MessageKind::kLeft && message.id == kCoordinatorRank && !leader_.leads()) {
    coordinator_leaves_ = true;
    return Status::Ok();
  }
  return leader_.OnIdMessage(kind, message);
}

// ---- leaving and reporting

void Negotiation::Leave() {
  // A log that stays full has a reader that is dead, and then no rank needs to be told.
  constexpr int kMostTries = 10'000;
  for (int i = 0; i < kMostTries && !memory_.log.TryAppend({LogKind::kLeft, group_.rank(), 0, 0}); ++i) log_.SkipAll();
  outbox_.Ring();
  if (!group_.one_group()) outbox_.Send(MessageKind::kLeave, 0);
}

std::set<int> Negotiation::Leaving() const {
  std::set<int> leaving;
  log_.AddLeaving(&leaving);
  leader_.AddLeaving(&leaving);
  messages_.AddLeaving(&leaving);
  return leaving;
}

void MessageReader::AddLeaving(std::set<int>* leaving) const {
  if (coordinator_leaves_) leaving->insert(kCoordinatorRank);
  for (const Bytes& message : waiting_) {
    ByteReader reader(message);
    if (reader.Get<MessageKind>() != MessageKind::kLeft) continue;
    const auto left = Decode<IdMessage>(&reader);
    if (reader.AtEnd()) leaving->insert(left.id);
  }
}

void Negotiation::ReportStuck(Ticket ticket) {
  const Name* const name = in_flight_.Find(ticket);
  if (name != nullptr && name->counted) outbox_.Send(MessageKind::kStuck, name->id);
}

std::vector<int> Negotiation::MissingRanks(Ticket ticket) const {
  std::vector<int> missing;
  const Name* const name = in_flight_.Find(ticket);
  if (name == nullptr || !name->counted || name->id < 0) return missing;
  const uint64_t use = name->next_use - 1;
  const bool awaits_shares =
      name->small() && in_flight_.IsLarge(*name) && in_flight_.HasReduced(*name, name->set().position);
  for (int m : group_.MembersIn(name->set())) {
    const int rank = group_.RankOf(m);
    const bool has_arrived = UsesIn(in_flight_.SaidBy(m, rank, *name, use)) > name->use;
    const bool is_awaited = awaits_shares && !in_flight_.HasReduced(*name, name->set().PositionOf(rank));
    if (!has_arrived || is_awaited) missing.push_back(rank);
  }
  return missing;
}

std::vector<Absence> Negotiation::NeededFor() const {
  std::vector<Absence> needed;
  for (int id = 0; id < kMaxIds; ++id) {
    const Name* const name = names_.Current(id);
    if (name == nullptr || name->in_flight || !name->set().contains_me()) continue;
    uint64_t said = 0;
    std::vector<int64_t> here;
    if (name->arrivals) {
      here = name->arrivals->ArrivedAt(name->set(), name->next_use, join_.round());
      said = name->arrivals->StampOfAny(name->set(), name->next_use, join_.round()).value_or(0);
    }
    for (int m : group_.MembersIn(name->set())) {
      const int rank = group_.RankOf(m);
      const uint64_t latest = in_flight_.SaidBy(m, rank, *name, name->next_use);
      if (rank == group_.rank() || UsesIn(latest) < name->next_use) continue;
      said = latest;
      here.push_back(rank);
    }
    if (here.empty()) continue;
    const std::string title = TitleOf(name->known.kind, name->set().id, name->description.name, SequenceNumberIn(said));
    needed.push_back({title, {group_.rank()}, std::move(here)});
  }
  return needed;
}

}  // namespace farandole
