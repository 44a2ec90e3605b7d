// Negotiation: messages from the coordinator.
#include <algorithm>

#include "controller/negotiation.h"
#include "controller/id_table.h"

namespace farandole {
namespace {

bool IsSpan(int64_t offset, int64_t size_bytes) {
  return offset >= 0 && offset % kSpanAlignment == 0 && size_bytes >= 0 &&
         size_bytes <= static_cast<int64_t>(kSpanBytes) && offset <= static_cast<int64_t>(kSpanBytes) - size_bytes;
}

bool FitsCells(const Lead& lead, int set_size) {  // as WantedSpanBytes says
  if (lead.payload_bytes < 0 || lead.payload_bytes > CellLimitBytes(set_size) || set_size > kMostCellMembers)
    return false;
  const size_t buffer_bytes = CellBuffer::BytesFor(set_size, static_cast<size_t>(lead.payload_bytes));
  return 2 * static_cast<int64_t>(buffer_bytes) == lead.span_bytes;
}

}  // namespace

Status Negotiation::OnMessage(const Bytes& message, std::vector<Event>* events) {
  bool early = !deferred_.empty();
  Status status;
  if (!early) status = Handle(message, events, false, &early);
  if (early) deferred_.push_back(message);
  return status;
}

// *early: it speaks of a process set whose making stands in the log, or of a name after a use whose end stands there,
// where we have not read it yet. log_is_read: as far as it can be understood without more messages.
Status Negotiation::Handle(const Bytes& message, std::vector<Event>* events, bool log_is_read, bool* early) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  switch (kind) {
    case MessageKind::kAssign:
      return OnAssign(&reader);
    case MessageKind::kInvite:
      return OnInvite(&reader, events, log_is_read, early);
    case MessageKind::kError:
      return OnError(&reader, events);
    case MessageKind::kLead:
      return OnLead(&reader, early);
    case MessageKind::kReady:
      return OnReady(&reader);
    case MessageKind::kJoinResult:
      return OnJoinResult(&reader);
    case MessageKind::kStacks:
      return OnStacks(&reader, events);
    case MessageKind::kRefused:
      return OnRefused(&reader, events);
    case MessageKind::kAbsent:
      return OnAbsent(&reader, events);
    case MessageKind::kAbort:
      return OnAbort(&reader, events);
    default:
      return OnIdMessage(kind, &reader, events);
  }
}

Status Negotiation::OnAbort(ByteReader* reader, std::vector<Event>* events) const {
  const auto aborted = Decode<Aborted>(reader);
  if (!reader->AtEnd()) return Unreadable(kCoordinatorRank);
  // An abort without a known reason is still one; it must not pass for a success.
  const auto code = static_cast<Code>(aborted.code);
  Status status(IsKnown(code) && code != Code::kOk ? code : Code::kInternal, aborted.text);
  const bool known = aborted.culprit >= 0 && aborted.culprit < group_.world().size();
  events->push_back(Event::OfRank(Event::kAbort, known ? aborted.culprit : -1, std::move(status)));
  return Status::Ok();
}

Status Negotiation::OnAssign(ByteReader* reader) {
  const auto assignment = Decode<Assignment>(reader);
  const auto book = books_.find(assignment.set);
  if (!reader->AtEnd() || book == books_.end()) return Unreadable(kCoordinatorRank);
  const auto found = book->second->names.find(assignment.name);
  if (found == book->second->names.end()) return Unreadable(kCoordinatorRank);
  Name* const name = found->second.get();
  const bool described = name->in_flight && !name->counted && name->id < 0;
  if (!described || !Accept(name, assignment)) return Unreadable(kCoordinatorRank);
  return Status::Ok();
}

// The name has the id from here on. False when the coordinator cannot have meant that.
bool Negotiation::Accept(Name* name, const Assignment& assignment) {
  const ProcessSet& set = *name->book->set;
  const Signature& signature = name->description.signature;
  const auto id = static_cast<size_t>(assignment.id);
  const int64_t span_offset = assignment.span_offset;
  if (by_id_[id] != nullptr) return false;
  const int64_t wanted_bytes = WantedSpanBytes(signature, set);
  const bool without = span_offset == -1 && signature.ExtentCount(set.size()) == 0;
  if (!without && (wanted_bytes == 0 || !IsSpan(span_offset, wanted_bytes))) return false;
  name->id = assignment.id;
  name->known = signature;
  name->span = {span_offset, wanted_bytes};
  name->small = span_offset >= 0 && IsSmall(signature, set);
  name->payload_bytes = name->small ? static_cast<size_t>(signature.TotalBytes()) : 0;
  name->inbox.reset();
  if (IsEager(signature, set, group_.world())) {
    const auto early = early_.find(assignment.serial);
    name->inbox = early != early_.end() ? early->second : std::make_shared<Inbox>(group_.world().size());
    if (early != early_.end()) early_.erase(early);
    if (!name->inbox->Expect(static_cast<size_t>(signature.TotalBytes()))) return false;
  }
  name->has_extents = signature.ExtentCount(set.size()) > 0;
  name->next_turn = 1;
  by_id_[id] = name;
  sharers_of_[id] = group_.SharersOf(set);
  serial_of_[id] = assignment.serial;
  last_serial_ = std::max(last_serial_, assignment.serial);
  ++name->ids_held;
  return true;
}

// This rank has joined, so it did not describe the operation; it is in flight here all the same.
Status Negotiation::OnInvite(ByteReader* reader, std::vector<Event>* events, bool log_is_read, bool* early) {
  auto invited = Decode<Invited>(reader);
  Description& description = invited.description;
  const auto book = books_.find(description.signature.set);
  if (!reader->AtEnd() || !takes_part_) return Unreadable(kCoordinatorRank);
  *early = book == books_.end() && sets_.IsFuture(description.signature.set);
  if (*early) return Status::Ok();
  if (book == books_.end() || !book->second->set->contains_me()) return Unreadable(kCoordinatorRank);
  if (!FitsSet(description, book->second->set->size(), group_.world().size())) return Unreadable(kCoordinatorRank);
  std::unique_ptr<Name>& slot = book->second->names[description.name];
  if (!slot) slot = std::make_unique<Name>();
  // The log says how that use ends, but for a small one that the others have completed: had it not been complete, the
  // log would have said so before anybody could describe the operation anew.
  if (slot->in_flight && log_is_read) TakeIfAllHavePut(slot.get(), events);
  *early = slot->in_flight;
  if (*early) return Status::Ok();
  slot->book = book->second.get();
  slot->description = description;
  slot->id = -1;
  if (!Accept(slot.get(), invited.assignment)) return Unreadable(kCoordinatorRank);
  Event event = Event::About(Event::kInvited, Begin(slot.get()));
  event.description = std::move(description);
  events->push_back(std::move(event));
  return Status::Ok();
}

void Negotiation::TakeIfAllHavePut(Name* name, std::vector<Event>* events) {
  if (!name->counted || !name->small || MustWaitFor(name->reserved)) return;
  const uint64_t sequence = SequenceOf(name->use, name->description.turn);
  if (CellsOf(*name, name->next_turn - 1).AllHavePut(sequence)) EndWith(Event::kTake, name, events);
}

Status Negotiation::OnError(ByteReader* reader, std::vector<Event>* events) {
  const auto failure = Decode<Failure>(reader);
  const auto book = books_.find(failure.set);
  const bool refuses = failure.code == Code::kMismatch || failure.code == Code::kInvalid;  // and the job goes on
  if (!reader->AtEnd() || !refuses || book == books_.end()) return Unreadable(kCoordinatorRank);
  const auto found = book->second->names.find(failure.name);
  if (found == book->second->names.end() || !found->second->in_flight) return Unreadable(kCoordinatorRank);
  Name* const name = found->second.get();
  if (name->counted || name->id >= 0) return Unreadable(kCoordinatorRank);  // only what was described can be refused
  if (name->description.signature.kind == OpKind::kRemoveProcessSet) ReopenSet(name->description.signature);
  EndWith(Event::kFailed, name, events);
  events->back().status = Status(failure.code, failure.text, failure.kinds);
  EraseIfIdle(name);
  return Status::Ok();
}

// Its removal was refused.
void Negotiation::ReopenSet(const Signature& signature) {
  const auto book = books_.find(static_cast<int>(signature.ranks.at(0)));
  if (book != books_.end() && book->second->removals > 0) --book->second->removals;
}

Status Negotiation::OnJoinResult(ByteReader* reader) {
  auto result = Decode<JoinResult>(reader);
  Event event = Event::OfRank(Event::kJoinEnd, result.rank);
  event.turns = std::move(result.turns);
  if (!reader->AtEnd() || !joined_ || event.rank < 0 || event.rank >= group_.world().size())
    return Unreadable(kCoordinatorRank);
  join_result_ = std::move(event);
  return Status::Ok();
}

Status Negotiation::OnLead(ByteReader* reader, bool* early) {
  const auto lead = Decode<Lead>(reader);
  if (!reader->AtEnd() || !group_.is_leader()) return Unreadable(kCoordinatorRank);
  if (leads_.count(lead.id) > 0) return Unreadable(kCoordinatorRank);
  const bool has_span = lead.span_offset >= 0;
  if (has_span && !IsSpan(lead.span_offset, lead.span_bytes)) return Unreadable(kCoordinatorRank);
  if (!has_span && (lead.cells != 0 || lead.extent_count > 0)) return Unreadable(kCoordinatorRank);
  if (lead.eager != 0 && (has_span || !HasPutStreams(group_.world()))) return Unreadable(kCoordinatorRank);
  const ProcessSetPtr set = sets_.Find(lead.set);
  *early = !set && sets_.IsFuture(lead.set);
  if (*early) return Status::Ok();
  if (!set) return Unreadable(kCoordinatorRank);
  const int64_t buffer_bytes = static_cast<int64_t>(sizeof(int64_t)) * lead.extent_count * set->size();
  if (buffer_bytes > lead.span_bytes / 2) return Unreadable(kCoordinatorRank);
  if (lead.cells != 0 && !FitsCells(lead, set->size())) return Unreadable(kCoordinatorRank);
  // Whoever had the memory before may have left sequence numbers in it.
  const Leading leading{lead, group_.SharersOf(*set), set};
  for (uint64_t buffer = 0; lead.cells != 0 && buffer < 2; ++buffer) leading.CellsOf(memory_.spans, buffer).Clear();
  leads_[lead.id] = leading;
  return Status::Ok();
}

Status Negotiation::OnReady(ByteReader* reader) {
  const auto ready = Decode<ReadyBatch>(reader);
  if (!reader->AtEnd() || !group_.is_leader()) return Unreadable(kCoordinatorRank);
  uint64_t across = 0;
  for (const ReadyItem& item : ready.items) {
    const auto found = leads_.find(item.id);
    if (found == leads_.end() || found->second.lead.set != item.set) return Unreadable(kCoordinatorRank);
    const Lead& lead = found->second.lead;
    const ProcessSet& set = *found->second.set;
    if (item.extents.size() != static_cast<size_t>(lead.extent_count) * static_cast<size_t>(set.size()))
      return Unreadable(kCoordinatorRank);
    if (std::any_of(item.extents.begin(), item.extents.end(), [](int64_t extent) { return extent < 0; }))
      return Unreadable(kCoordinatorRank);
    memory_.spans.WriteExtents(found->second.span(), item.turn, 0, item.extents);
    if (!set.local()) ++across;
    Append({LogKind::kReady, item.id, 0, item.set});
  }
  // Of sets across groups only the coordinator cuts batches, so that all their groups have the same.
  if (across > 0) AppendSeal(across_written_ += across);
  ring_ = true;
  return Status::Ok();
}

Status Negotiation::OnStacks(ByteReader* reader, std::vector<Event>* events) const {
  auto answer = Decode<Answered>(reader);
  if (!reader->AtEnd() || answer.rank < 0 || answer.rank >= group_.world().size()) return Unreadable(kCoordinatorRank);
  events->push_back(Event::OfRank(Event::kAnswered, answer.rank));
  events->back().where = std::move(answer.where);
  return Status::Ok();
}

Status Negotiation::OnRefused(ByteReader* reader, std::vector<Event>* events) const {
  const auto refused = Decode<Refused>(reader);
  if (!reader->AtEnd() || refused.rank < 0 || refused.rank >= group_.world().size())
    return Unreadable(kCoordinatorRank);
  events->push_back(Event::OfRank(Event::kRefused, refused.rank, {Code::kInvalid, refused.text}));
  return Status::Ok();
}

Status Negotiation::OnAbsent(ByteReader* reader, std::vector<Event>* events) const {
  Event event;
  event.kind = Event::kAbsent;
  event.absences = Decode<Absent>(reader).absences;
  bool are_ranks = reader->AtEnd();
  for (const Absence& absence : event.absences) {
    for (const std::vector<int64_t>& ranks : {absence.ranks, absence.here}) {
      are_ranks = are_ranks && std::all_of(ranks.begin(), ranks.end(),
                                           [&](int64_t rank) { return rank >= 0 && rank < group_.world().size(); });
    }
  }
  if (!are_ranks) return Unreadable(kCoordinatorRank);
  events->push_back(std::move(event));
  return Status::Ok();
}

Status Negotiation::OnIdMessage(MessageKind kind, ByteReader* reader, std::vector<Event>* events) {
  const auto [id, value] = Decode<IdMessage>(reader);
  if (!reader->AtEnd() || !IsId(id)) return Unreadable(kCoordinatorRank);
  if (kind == MessageKind::kJoined && joined_) {
    takes_part_ = true;
    return Status::Ok();
  }
  if (kind == MessageKind::kOpen && takes_part_) {
    opened_[id] = value;
    return Status::Ok();
  }
  if (kind == MessageKind::kTell && id < group_.world().size()) {
    events->push_back(Event::OfRank(Event::kAsked, id));
    return Status::Ok();
  }
  if (kind == MessageKind::kLeft && id == kCoordinatorRank && !group_.is_leader()) {
    coordinator_leaves_ = true;
    return Status::Ok();
  }
  if (!group_.is_leader()) return Unreadable(kCoordinatorRank);
  const auto lead = leads_.find(id);
  if (kind == MessageKind::kRetire && lead != leads_.end()) {
    retiring_[id] = RetireInGroup(lead->second);
  } else if (kind == MessageKind::kRetired && lead != leads_.end() &&
             std::find(freeing_.begin(), freeing_.end(), id) == freeing_.end()) {
    Append({LogKind::kRetired, id, static_cast<uint8_t>(value), lead->second.lead.set});
    freeing_.push_back(id);
  } else if (kind == MessageKind::kLeft && id < group_.world().size()) {
    Append({LogKind::kLeft, id, 0, 0});
  } else if (kind == MessageKind::kJoinEnd) {
    Append({LogKind::kJoinEnd, 0, 0, 0});
  } else {
    return Unreadable(kCoordinatorRank);
  }
  ring_ = true;
  return Status::Ok();
}

}  // namespace farandole
