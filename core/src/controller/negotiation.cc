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
void UpdateLastCall(Name* name, const DescribedOperation& operation, Admission* admission) {
  name->description.sequence_number = admission->sequence_number = operation.sequence_number();
  if (name->description.site != operation.site()) {  // nearly always the same
    name->description.site = operation.site();
    name->label.site = 0;
  }
  admission->label = &name->label;
}

bool AreRanks(const std::vector<int64_t>& ranks, const Layout& world) {
  return std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) { return rank >= 0 && rank < world.size(); });
}

}  // namespace

// ---- submitting

Negotiation::Negotiation(const Layout& layout, int rank, std::byte* memory, const Limits& limits)
    : limits_(limits),
      node_(layout, rank),
      memory_(memory, node_.member(), node_.size(), limits.log_entries),
      names_(node_),
      in_flight_(memory_.counters, memory_.buffers, limits.one_phase_bytes),
      join_(node_, &outbox_),
      log_queue_(&memory_.log),
      leader_(node_, &memory_, &log_queue_, &names_, &outbox_),
      log_(&memory_, &names_, &in_flight_, &join_, &outbox_) {}

Status Negotiation::CanBegin(int set) const { return Refusal(set, names_.Names(set), node_.rank()); }

Status Negotiation::Submit(const DescribedOperation& operation, Admission* admission) {
  SetNames* const names = names_.Names(operation.set());
  FRD_RETURN_IF_ERROR(Refusal(operation.set(), names, node_.rank()));
  Name* const name = names_.FindOrAdd(names, operation.name());
  if (name->in_flight) return AlreadyInFlight(name->description, node_.rank());
  if (!Knows(*name, operation)) return Describe(operation, name, admission);
  UpdateLastCall(name, operation, admission);
  const bool has_counts = name->properties.counts_per_rank > 0;
  if (has_counts) name->description.counts = operation.Counts();
  // Nothing throws from here on.
  if (admission->set != names->set) admission->set = names->set;  // comparing costs less than counting references
  admission->ticket = in_flight_.Begin(name);
  in_flight_.Arrive(name, admission);
  if (has_counts) {
    const std::vector<int64_t>& counts = name->description.counts;
    const size_t first = static_cast<size_t>(name->set().position) * counts.size();
    memory_.buffers.WriteCounts(name->properties.buffers, name->use, first, counts);
  }
  return Status::Ok();
}

// An id of another signature stays as it is until the coordinator evicts it: the others may still use it. This rank
// only lets go of it, and describes what it means now.
Status Negotiation::Describe(const DescribedOperation& operation, Name* name, Admission* admission) {
  Description description = operation.Describe();
  const Signature& signature = description.signature;
  const bool removes = signature.kind == OpKind::kRemoveProcessSet;
  if (removes) FRD_RETURN_IF_ERROR(CanRemove(static_cast<int>(signature.ranks.at(0))));
  description.replaces = name->serial();
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
bool Negotiation::Refuse(Description refusal) {
  const SetNames* const names = names_.Names(refusal.signature.set);
  if (names == nullptr || !names->IsOpen() || !names->set->contains_me()) return false;
  if (Name* const name = names->Find(refusal.name)) {
    if (name->in_flight) return false;
    refusal.replaces = name->serial();
    name->id = -1;
  }
  outbox_.Send(Encode(MessageKind::kDescribe, refusal));
  return true;
}

// Takes operations whose name is known. Everything else is left to Submit.
Name* Negotiation::SubmitSmall(const DescribedOperation& operation, Admission* admission) {
  const SetNames* const names = names_.Names(operation.set());
  if (names == nullptr || !names->IsOpen() || !names->set->contains_me()) return nullptr;
  Name* const name = names->Find(operation.name());
  if (name == nullptr || !name->small() || name->in_flight || !Knows(*name, operation)) return nullptr;
  UpdateLastCall(name, operation, admission);
  in_flight_.ArriveSmall(name, admission);
  return name;
}

Negotiation::Arrived Negotiation::Arrive(const Admission& admission) {
  const int id = admission.id;
  const int local_members = names_[id].properties.local_members;
  const ArrivalCounters::Arrival arrival = memory_.counters.Arrive(id, admission.generation(), local_members);
  if (arrival.evicted) return Arrived::kEvicted;
  if (!arrival.last) return Arrived::kCounted;
  if (admission.sequence_number < 0) return Arrived::kLast;
  const std::vector<int> members = node_.MembersIn(*admission.set);
  const bool all_agree = std::all_of(members.begin(), members.end(), [&](int member) {
    return memory_.counters.LatestOf(member, id) == admission.generation();
  });
  if (all_agree) return Arrived::kLast;
  // After a disagreement the sequence numbers of the ranks may differ by a pool's size. Then the arrivals do not count,
  // and the coordinator pairs the operations by their sequence numbers.
  memory_.counters.TakeBack(id, local_members);
  outbox_.Send(MessageKind::kStuck, id);
  return Arrived::kCounted;
}

// The arrival was not counted, so this rank describes the operation anew.
void Negotiation::Redescribe(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  name->id = -1;
  in_flight_.CancelArrival(name);
  outbox_.Send(Encode(MessageKind::kDescribe, name->description));
}

bool Negotiation::PublishComplete(const Admission& admission) {
  if (admission.set->local()) return log_queue_.Append({LogKind::kReady, admission.id, 0, admission.set->id});
  memory_.log.PushCompleted(admission.id);
  return true;
}

void Negotiation::EndSmall(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  if (!in_flight_.IsTwoPhase(*name)) in_flight_.PrefetchNext(*name);
  in_flight_.End(name);
  log_.ForgetIfEvicting(name);
}

// Early messages have connections of their own, so another rank's may be here before the coordinator's ASSIGN, which
// has a higher serial than all that this rank has read. One with a lower serial belongs to an evicted id.
bool Negotiation::WantsMessage(const MessageTag& tag) const {
  const Name* const name = IsId(tag.id) ? names_.Current(tag.id) : nullptr;
  return tag.serial > last_serial_ || (name != nullptr && name->serial() == tag.serial);
}

void Negotiation::EndEarly(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  in_flight_.End(name);
  log_.ForgetIfEvicting(name);
}

// ---- what others say

bool Negotiation::HasNews() const {
  return log_.HasNews() || !log_queue_.empty() || !waiting_.empty() || leader_.HasNews();
}

bool Negotiation::Advance(NegotiationEvents* events) {
  bool moved = log_.ReleaseFinished(events);
  if (log_queue_.AppendWaiting()) {
    outbox_.Ring();
    moved = true;
  }
  if (leader_.Advance()) moved = true;
  const uint64_t before = log_.head();
  do {
    log_.Read(events);
  } while (ReadWaiting(events));
  if (log_.head() != before) log_.PublishHead();
  return moved || log_.head() != before;
}

// ---- messages of the coordinator

Status Negotiation::OnMessage(const Bytes& message, NegotiationEvents* events) {
  const Reading reading = waiting_.empty() ? Read(message, events) : Reading::kMustWait;
  if (reading == Reading::kMustWait) waiting_.push_back(message);
  return reading == Reading::kImpossible ? Unreadable(kCoordinatorRank) : Status::Ok();
}

// Handles waiting messages. Returns whether it handled any.
bool Negotiation::ReadWaiting(NegotiationEvents* events) {
  const size_t before = waiting_.size();
  while (!waiting_.empty()) {
    const Reading reading = Read(waiting_.front(), events);
    if (reading == Reading::kMustWait) break;
    if (reading == Reading::kImpossible)
      events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAbort, -1, Unreadable(kCoordinatorRank)));
    waiting_.pop_front();
  }
  return waiting_.size() != before;
}

Negotiation::Reading Negotiation::Read(const Bytes& message, NegotiationEvents* events) {
  if (const auto assignment = ReadAs<Assignment>(message)) return OnAssign(*assignment, events);
  return Dispatch(message, events) ? Reading::kDone : Reading::kImpossible;
}

bool Negotiation::Dispatch(const Bytes& message, NegotiationEvents* events) {
  if (const auto log = ReadAs<LogItems>(message)) return leader_.OnLog(*log);
  if (const auto error = ReadAs<Error>(message)) return OnError(*error, events);
  if (const auto evict = ReadAs<IdMessage>(message, MessageKind::kEvict)) return leader_.OnEvict(evict->id);
  if (const auto leave = ReadAs<Leave>(message)) return OnLeave(leave->rank);
  if (auto result = ReadAs<Join>(message, MessageKind::kJoinEnd)) return OnJoinEnd(std::move(*result));
  if (const auto question = ReadAs<Question>(message)) return OnQuestion(*question, events);
  if (auto answer = ReadAs<Answer>(message)) return OnAnswer(std::move(*answer), events);
  if (const auto abort = ReadAs<Abort>(message)) return OnAbort(*abort, events);
  return false;
}

// Members alone change the set, and this rank is none of them. REQUIRES: a removed set is not a future one.
bool Negotiation::IsOutsideOf(const Description& description) const {
  if (!description.IsByMembers()) return false;
  const std::vector<int64_t>& ranks = description.signature.ranks;
  if (description.signature.kind == OpKind::kAddProcessSet)
    return std::find(ranks.begin(), ranks.end(), node_.rank()) == ranks.end();
  const ProcessSetPtr removed = FindSet(static_cast<int>(ranks[0]));
  return removed && !removed->contains_me();
}

// This rank has described the operation, has joined, only leads its node, or is outside of the set that changes.
Negotiation::Reading Negotiation::OnAssign(const Assignment& assignment, NegotiationEvents* events) {
  const Description& description = assignment.description;
  SetNames* const names = names_.Names(description.signature.set);
  if (names == nullptr && names_.IsFutureSet(description.signature.set)) return Reading::kMustWait;
  if (names == nullptr || !FitsSet(description, names->set->size(), node_.world().size())) return Reading::kImpossible;
  const bool removes = description.IsByMembers() && description.signature.kind == OpKind::kRemoveProcessSet;
  if (removes && names_.IsFutureSet(static_cast<int>(description.signature.ranks[0]))) return Reading::kMustWait;
  const std::optional<IdProperties> properties = PropertiesOf(assignment, *names->set, node_);
  if (!properties || properties->local_members == 0) return Reading::kImpossible;
  const bool is_member = names->set->contains_me(), is_outside = IsOutsideOf(description);
  const bool is_invited = is_member && !is_outside && join_.joined();
  const bool must_be_described = is_member && !is_outside && !is_invited;
  Name* name = names->Find(description.name);
  if (is_invited && name != nullptr && name->in_flight) return Reading::kMustWait;  // the log says how that use ends
  if (assignment.names_differ && must_be_described) name = NameTable::FindAwaiting(*names, description.sequence_number);
  const bool is_described = name != nullptr && name->AwaitsId() && name->description.signature == description.signature;
  if (must_be_described ? !is_described : is_member && !assignment.once) return Reading::kImpossible;
  const bool is_in_use = names_.at(assignment.id) != nullptr || (leader_.is_leader() && leader_.Tracks(assignment.id));
  if (is_in_use || (!is_member && !leader_.is_leader())) return Reading::kImpossible;
  if (is_invited) name = BeginInvited(names, description, events);
  if (is_outside) name = AddOutside(assignment);
  names_.Assign(is_member ? name : nullptr, assignment.id, *properties, names->set);
  last_serial_ = std::max(last_serial_, assignment.serial);
  if (leader_.is_leader()) leader_.Track(assignment.id);
  if (assignment.names_differ && must_be_described) {
    events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kNamesDiffer, kCoordinatorRank));
    events->back().description = name->description;
  }
  return Reading::kDone;
}

// This rank has joined, so it did not describe the operation; it is in flight here all the same.
Name* Negotiation::BeginInvited(SetNames* names, const Description& description, NegotiationEvents* events) {
  Name* const name = names_.FindOrAdd(names, description.name);
  name->description = description;
  events->push_back(NegotiationEvent::About(NegotiationEvent::kInvited, in_flight_.Begin(name)));
  events->back().description = description;
  events->back().set = names->set;
  return name;
}

// Several sets may change under one name at a time, and users may choose any name, so these have a table of their own.
Name* Negotiation::AddOutside(const Assignment& assignment) {
  Name* const name = names_.FindOrAdd(names_.outside(), std::to_string(assignment.id));
  name->description = assignment.description;
  name->outside = true;
  return name;
}

bool Negotiation::OnError(const Error& error, NegotiationEvents* events) {
  const bool refuses = error.code == Code::kMismatch || error.code == Code::kInvalid;  // and the job goes on
  Name* const name = names_.Find(error.set, error.name);
  if (!refuses || name == nullptr || !name->AwaitsId()) return false;
  const Signature& signature = name->description.signature;
  if (signature.kind == OpKind::kRemoveProcessSet) names_.Reopen(signature);
  in_flight_.EndWith(NegotiationEvent::kFailed, name, events);
  events->back().status = Status::OfKinds(error.code, error.text, error.kinds);
  names_.EraseIfIdle(name);
  return true;
}

bool Negotiation::OnJoinEnd(Join result) {
  if (!join_.OnResult(std::move(result))) return false;
  if (leader_.is_leader()) leader_.Append({LogKind::kJoinEnd, 0, 0, 0});
  return true;
}

bool Negotiation::OnLeave(int rank) {
  if (rank < 0 || rank >= node_.world().size()) return false;
  if (leader_.is_leader()) leader_.Append(LogEntry::Left(rank));
  coordinator_leaves_ = coordinator_leaves_ || rank == kCoordinatorRank;
  return leader_.is_leader() || rank == kCoordinatorRank;
}

bool Negotiation::OnQuestion(const Question& question, NegotiationEvents* events) const {
  events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAsked, question.asker));
  return AreRanks({question.asker}, node_.world());
}

bool Negotiation::OnAnswer(Answer answer, NegotiationEvents* events) const {
  bool are_ranks = answer.rank == Answer::kNobody || AreRanks({answer.rank}, node_.world());
  for (const Absence& absence : answer.absences)
    are_ranks = are_ranks && AreRanks(absence.ranks, node_.world()) && AreRanks(absence.here, node_.world());
  if (!are_ranks) return false;
  events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAnswered, answer.rank));
  events->back().answer = std::move(answer);
  return true;
}

// An abort without a known reason is still one; it must not pass for a success.
bool Negotiation::OnAbort(const Abort& abort, NegotiationEvents* events) const {
  const auto code = static_cast<Code>(abort.code);
  Status status(IsKnown(code) && code != Code::kOk ? code : Code::kInternal, abort.text);
  const int culprit = AreRanks({abort.culprit}, node_.world()) ? abort.culprit : -1;
  events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAbort, culprit, std::move(status)));
  return true;
}

// ---- leaving and reporting

bool Negotiation::LogLeaving() { return log_queue_.TryAppend(LogEntry::Left(node_.rank())); }

void Negotiation::SendLeaving() {
  if (!node_.one_node()) outbox_.Send(Encode(Leave{node_.rank()}));
}

std::set<int> Negotiation::Leaving() const {
  std::set<int> leaving;
  log_.AddLeaving(&leaving);
  log_queue_.AddLeaving(&leaving);
  if (coordinator_leaves_) leaving.insert(kCoordinatorRank);
  for (const Bytes& message : waiting_) {
    if (const auto leave = ReadAs<Leave>(message)) leaving.insert(leave->rank);
  }
  return leaving;
}

void Negotiation::SendQuestion(const std::vector<int>& ranks) {
  outbox_.Send(Encode(Question{node_.rank(), {ranks.begin(), ranks.end()}}));
}

void Negotiation::SendAnswer(int asker, const std::string& text) {
  outbox_.Send(Encode(Answer{asker, node_.rank(), text, {}}));
}

void Negotiation::ReportStuck(Ticket ticket) {
  const Name* const name = in_flight_.Find(ticket);
  if (name != nullptr && name->counted) outbox_.Send(MessageKind::kStuck, name->id);
}

std::vector<int> Negotiation::MissingRanks(Ticket ticket) const {
  std::vector<int> missing;
  const Name* const name = in_flight_.Find(ticket);
  if (name == nullptr || !name->counted || name->id < 0) return missing;
  const bool awaits_shares =
      name->small() && in_flight_.IsTwoPhase(*name) && in_flight_.HasReduced(*name, name->set().position);
  for (int m : node_.MembersIn(name->set())) {
    const int rank = node_.RankOf(m);
    const bool has_arrived = UseOf(in_flight_.LatestGenerationOf(m, rank, *name, name->use)) >= name->use;
    const bool is_awaited = awaits_shares && !in_flight_.HasReduced(*name, name->set().PositionOf(rank));
    if (!has_arrived || is_awaited) missing.push_back(rank);
  }
  return missing;
}

// Returns the other ranks that have arrived at the name's next use, with their generations, as far as this rank can
// see.
std::map<int, uint64_t> Negotiation::OthersAt(const Name& name) const {
  const uint64_t next = name.use + 1;
  std::map<int, uint64_t> others;
  for (int m : node_.MembersIn(name.set())) {
    if (m == node_.member()) continue;
    const uint64_t generation = in_flight_.LatestGenerationOf(m, node_.RankOf(m), name, next);
    if (UseOf(generation) >= next) others[node_.RankOf(m)] = generation;
  }
  return others;
}

std::vector<Absence> Negotiation::NeededFor() const {
  std::vector<Absence> needed;
  for (int id = 0; id < kMaxIds; ++id) {
    const Name* const name = names_.Current(id);
    if (name == nullptr || name->in_flight || !name->set().contains_me()) continue;
    const std::map<int, uint64_t> others = OthersAt(*name);
    if (others.empty()) continue;
    const int64_t sequence_number = SequenceNumberOf(others.begin()->second);
    Absence& absence = needed.emplace_back();
    absence.title = TitleOf(name->description.signature.kind, name->set().id, name->description.name, sequence_number);
    absence.ranks = {node_.rank()};
    for (const auto& [rank, generation] : others) absence.here.push_back(rank);
  }
  return needed;
}

}  // namespace farandole
