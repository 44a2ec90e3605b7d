#include "controller/agreement.h"

#include <algorithm>
#include <cstring>

#include "controller/coordinator.h"

namespace farandole {
namespace {

Status Unreadable() { return {Code::kPeerLost, "rank 0 sent a control message that cannot be read"}; }

bool IsError(int32_t code) {
  return code >= static_cast<int32_t>(Code::kInvalid) && code <= static_cast<int32_t>(Code::kInternal);
}

bool IsSpan(int64_t offset, int64_t size_bytes) {
  return offset >= 0 && size_bytes <= static_cast<int64_t>(kSpanBytes) &&
         offset <= static_cast<int64_t>(kSpanBytes) - size_bytes;
}

int64_t HalfBytes(const ReadyItem& item) { return static_cast<int64_t>(item.extents.size() * sizeof(int64_t)); }

bool IsValid(const ReadyItem& item) {
  if (item.id < 0 || item.id >= kMaxIds) return false;
  if (std::any_of(item.extents.begin(), item.extents.end(), [](int64_t extent) { return extent < 0; })) return false;
  return IsSpan(item.span_offset, 2 * HalfBytes(item)) || (item.span_offset == -1 && item.extents.empty());
}

}  // namespace

Agreement::Agreement(const Layout& layout, int rank, std::byte* board_memory)
    : layout_(layout),
      rank_(rank),
      board_(board_memory, layout.member_of[static_cast<size_t>(rank)],
             static_cast<int>(layout.groups[static_cast<size_t>(layout.group_of[static_cast<size_t>(rank)])].size())),
      one_group_(layout.group_count() == 1) {}

// ---- submitting

Status Agreement::Submit(const Description& description, Ticket ticket, Plan* plan) {
  std::unique_ptr<Name>& slot = names_[description.name];
  if (!slot) slot = std::make_unique<Name>();
  Name* const name = slot.get();
  if (name->in_flight) {
    return Invalid(description.Title() + " is already in flight on rank " + std::to_string(rank_) +
                   "; wait for it before submitting that name again, or give it another name");
  }
  name->in_flight = true;
  name->ticket = ticket;
  in_flight_[ticket] = name;
  plan->ticket = ticket;
  if (name->id < 0 || name->known != description.signature) {
    name->description = description;
    name->id = -1;
    Describe(name);
    return Status::Ok();
  }
  name->description.turn = description.turn;
  name->description.extents = description.extents;
  name->counted = true;
  plan->id = name->id;
  plan->use = name->use = name->next_turn - 1;
  plan->turn = name->next_turn++;
  plan->span = SpanOf(*name, plan->turn);
  if (!description.extents.empty()) {
    const size_t first = static_cast<size_t>(rank_) * description.extents.size();
    WriteExtents(plan->span, first, description.extents);
  }
  return Status::Ok();
}

void Agreement::Describe(Name* name) {
  name->counted = false;
  outgoing_.push_back(EncodeDescribe(name->description));
}

void Agreement::Redescribe(Ticket ticket) {
  const auto found = in_flight_.find(ticket);
  if (found == in_flight_.end() || !found->second->counted) return;  // Advance has read RETIRED meanwhile and did it
  found->second->id = -1;
  Describe(found->second);
}

Agreement::Arrived Agreement::Translate(const Board::Arrival& arrival) {
  if (arrival.retired) return Arrived::kRetired;
  return arrival.last ? Arrived::kLast : Arrived::kCounted;
}

void Agreement::CompleteAlone(const Plan& plan) { board_.Append({LogKind::kDone, plan.id, 0}); }

void Agreement::CompleteTogether(const Plan& plan) {
  if (one_group_) {
    board_.Append({LogKind::kReady, plan.id, 0});
  } else {
    board_.PushCompleted(plan.id);
  }
}

std::byte* Agreement::SpanOf(const Name& name, uint64_t turn) const {
  if (name.span_offset < 0) return nullptr;
  return board_.span(static_cast<size_t>(name.span_offset + static_cast<int64_t>(turn & 1) * name.span_bytes / 2));
}

void Agreement::WriteExtents(std::byte* span, size_t first, const std::vector<int64_t>& extents) const {
  std::memcpy(span + first * sizeof(int64_t), extents.data(), extents.size() * sizeof(int64_t));
}

std::vector<int64_t> Agreement::ReadExtents(const Name& name) const {
  if (name.description.extents.empty()) return {};
  std::vector<int64_t> extents(name.description.extents.size() * static_cast<size_t>(layout_.size()));
  std::memcpy(extents.data(), SpanOf(name, name.next_turn - 1), extents.size() * sizeof(int64_t));
  return extents;
}

// ---- reading the log

bool Agreement::Advance(std::vector<Event>* events) {
  bool moved = ReleaseFinished();
  if (leader() && AdvanceAsLeader()) moved = true;
  for (;;) {
    const std::optional<LogEntry> entry = board_.Read(head_);
    if (!entry || !Consume(*entry, events)) return moved;
    moved = true;
    ++head_;
    if (head_ != sealed_end_ || building_.items.empty()) continue;
    events->push_back(std::move(building_));
    building_ = Event();
  }
}

// False when the entry cannot be understood yet: its batch is not sealed, or its ASSIGN is still on the way.
bool Agreement::Consume(const LogEntry& entry, std::vector<Event>* events) {
  if (entry.kind == LogKind::kLeft) {
    Event event;
    event.kind = Event::kLeft;
    event.rank = entry.id;
    events->push_back(std::move(event));
    return true;
  }
  Name* const name = by_id_[static_cast<size_t>(entry.id)];
  if (name == nullptr) return false;
  if (entry.kind == LogKind::kRetired) {
    OnRetired(name, entry);
    return true;
  }
  if (entry.kind == LogKind::kReady && !EnsureSealed()) return false;
  Complete(name, entry, events);
  return true;
}

bool Agreement::EnsureSealed() {
  if (head_ < sealed_end_) return true;
  if (one_group_) {
    sealed_end_ = board_.SealOrRead(batch_, board_.log_end());
  } else {
    const std::optional<uint64_t> end = board_.ReadSeal(batch_);
    if (!end) return false;
    sealed_end_ = *end;
  }
  ++batch_;
  return true;
}

void Agreement::Complete(Name* name, const LogEntry& entry, std::vector<Event>* events) {
  if (!name->in_flight ||
      name->id != entry.id) {  // only a READY or RETIRED that no coordinator of ours sends does this
    Event event;
    event.kind = Event::kAbort;
    event.status = Unreadable();
    events->push_back(std::move(event));
    return;
  }
  Item item{name->ticket, ReadExtents(*name)};
  in_flight_.erase(name->ticket);
  name->in_flight = false;
  if (entry.kind == LogKind::kReady) {
    building_.items.push_back(std::move(item));
  } else {
    events->push_back(Take(*name, std::move(item)));
  }
  if (!name->retiring) return;
  name->retiring = false;
  name->id = -1;
  Forget(entry.id);
  EraseIfIdle(name);
}

Agreement::Event Agreement::Take(const Name& name, Item item) const {
  Event event;
  event.kind = Event::kTake;
  event.span = SpanOf(name, name.next_turn - 1);
  event.items.push_back(std::move(item));
  return event;
}

void Agreement::OnRetired(Name* name, const LogEntry& entry) {
  const bool current = name->id == entry.id;
  if (current && name->in_flight && name->counted) {
    const bool completed = static_cast<int8_t>(static_cast<uint8_t>(name->use) - entry.uses) < 0;
    if (completed) {
      name->retiring = true;  // the last arriver's entry is still to come
      return;
    }
    name->id = -1;
    Describe(name);
  }
  if (current) name->id = -1;
  Forget(entry.id);
  EraseIfIdle(name);
}

void Agreement::Forget(int id) {
  --by_id_[static_cast<size_t>(id)]->ids_held;
  by_id_[static_cast<size_t>(id)] = nullptr;
  finished_.push_back(id);
}

bool Agreement::ReleaseFinished() {
  if (finished_.empty()) return false;
  for (int id : finished_) {
    if (board_.DoneWith(id)) ring_ = true;  // the leader waits for this
  }
  finished_.clear();
  return true;
}

// Names that come once and never again must not fill the memory.
void Agreement::EraseIfIdle(Name* name) {
  if (name->id >= 0 || name->in_flight || name->ids_held > 0) return;
  const std::string key = name->description.name;  // a copy: erasing by a reference into the erased is undefined
  names_.erase(key);
}

// ---- messages from the coordinator

Status Agreement::OnMessage(const Bytes& message, std::vector<Event>* events) {
  ByteReader reader(message);
  const auto kind = reader.Get<MessageKind>();
  switch (kind) {
    case MessageKind::kAssign:
      return OnAssign(&reader);
    case MessageKind::kError:
      return OnError(&reader, events);
    case MessageKind::kReady:
      return OnReady(&reader);
    case MessageKind::kAbort:
      return OnAbort(&reader, events);
    default:
      return OnIdMessage(kind, &reader);
  }
}

Status Agreement::OnAbort(ByteReader* reader, std::vector<Event>* events) const {
  Event event;
  event.kind = Event::kAbort;
  const auto code = reader->Get<int32_t>();
  const auto culprit = reader->Get<int32_t>();
  // An abort without a known reason is still one; it must not pass for a success.
  event.status = Status(IsError(code) ? static_cast<Code>(code) : Code::kInternal, reader->GetString());
  if (!reader->AtEnd()) return Unreadable();
  event.rank = culprit >= 0 && culprit < layout_.size() ? culprit : -1;
  events->push_back(std::move(event));
  return Status::Ok();
}

Status Agreement::OnAssign(ByteReader* reader) {
  const std::string key = reader->GetString();
  const int id = reader->Get<int32_t>();
  const auto span_offset = reader->Get<int64_t>();
  const auto found = names_.find(key);
  if (!reader->AtEnd() || id < 0 || id >= kMaxIds || found == names_.end()) return Unreadable();
  Name* const name = found->second.get();
  const bool described = name->in_flight && !name->counted && name->id < 0;
  if (!described || by_id_[static_cast<size_t>(id)] != nullptr) return Unreadable();
  const int64_t wanted_bytes = WantedSpanBytes(name->description.signature, layout_);
  const bool without = span_offset == -1 && name->description.extents.empty();
  if (!without && (wanted_bytes == 0 || !IsSpan(span_offset, wanted_bytes))) return Unreadable();
  name->id = id;
  name->known = name->description.signature;
  name->span_offset = span_offset;
  name->span_bytes = wanted_bytes;
  name->next_turn = 1;
  by_id_[static_cast<size_t>(id)] = name;
  ++name->ids_held;
  return Status::Ok();
}

Status Agreement::OnError(ByteReader* reader, std::vector<Event>* events) {
  const std::string key = reader->GetString();
  const std::string text = reader->GetString();
  const auto found = names_.find(key);
  if (!reader->AtEnd() || found == names_.end() || !found->second->in_flight) return Unreadable();
  Name* const name = found->second.get();
  if (name->counted || name->id >= 0) return Unreadable();  // only what was described can be refused
  Event event;
  event.kind = Event::kFailed;
  event.items.push_back({name->ticket, {}});
  event.status = Status(Code::kMismatch, text);
  events->push_back(std::move(event));
  in_flight_.erase(name->ticket);
  name->in_flight = false;
  EraseIfIdle(name);
  return Status::Ok();
}

Status Agreement::OnReady(ByteReader* reader) {
  const std::vector<ReadyItem> items = DecodeReady(reader);
  if (!reader->AtEnd() || !leader() || !std::all_of(items.begin(), items.end(), IsValid)) return Unreadable();
  for (const ReadyItem& item : items) {
    if (!item.extents.empty()) {
      const int64_t offset = item.span_offset + static_cast<int64_t>(item.turn & 1) * HalfBytes(item);
      WriteExtents(board_.span(static_cast<size_t>(offset)), 0, item.extents);
    }
    board_.Append({LogKind::kReady, item.id, 0});
  }
  // Where there are several groups only the coordinator cuts batches, so that all logs have the same.
  if (!one_group_) board_.SealOrRead(seals_written_++, board_.log_end());
  ring_ = true;
  return Status::Ok();
}

Status Agreement::OnIdMessage(MessageKind kind, ByteReader* reader) {
  const int id = reader->Get<int32_t>();
  const auto value = reader->Get<uint64_t>();
  if (!reader->AtEnd() || id < 0 || id >= kMaxIds || !leader()) return Unreadable();
  if (kind == MessageKind::kRetire) {
    retiring_[id] = board_.Retire(id);
  } else if (kind == MessageKind::kRetired) {
    board_.Append({LogKind::kRetired, id, static_cast<uint8_t>(value)});
    freeing_.push_back(id);
  } else if (kind == MessageKind::kLeft && id < layout_.size()) {
    board_.Append({LogKind::kLeft, id, 0});
  } else {
    return Unreadable();
  }
  ring_ = true;
  return Status::Ok();
}

// ---- leading

// A completed use is reported before the id is reported closed. In one group nothing is reported, the log has it.
bool Agreement::CanReportRetired(int id, uint64_t uses) const {
  return one_group_ || completes_sent_[static_cast<size_t>(id)] == uses;
}

bool Agreement::LeaderHasNews() const {
  if (!leader()) return false;
  if (board_.ReadCompleted(completed_head_).has_value()) return true;
  for (const auto& [id, uses] : retiring_) {
    if (CanReportRetired(id, uses)) return true;
  }
  for (int id : freeing_) {
    if (board_.AllDoneWith(id)) return true;
  }
  return false;
}

bool Agreement::AdvanceAsLeader() {
  const size_t before = outgoing_.size();
  while (const std::optional<int> id = board_.ReadCompleted(completed_head_)) {
    Name* const name = by_id_[static_cast<size_t>(*id)];
    if (name == nullptr) break;  // our own ASSIGN is still to be read
    ++completed_head_;
    const uint64_t turn = ++completes_sent_[static_cast<size_t>(*id)];
    outgoing_.push_back(EncodeComplete(*id, turn, GroupExtents(*name, turn)));
  }
  for (auto it = retiring_.begin(); it != retiring_.end();) {
    const auto [id, uses] = *it;
    const bool reported = CanReportRetired(id, uses);
    if (reported) outgoing_.push_back(EncodeIdMessage(MessageKind::kRetireInfo, id, uses));
    it = reported ? retiring_.erase(it) : std::next(it);
  }
  for (size_t i = 0; i < freeing_.size();) {
    const int id = freeing_[i];
    if (!board_.AllDoneWith(id)) {
      ++i;
      continue;
    }
    board_.Reset(id);
    completes_sent_[static_cast<size_t>(id)] = 0;
    outgoing_.push_back(EncodeIdMessage(MessageKind::kFree, id));
    freeing_.erase(freeing_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return outgoing_.size() != before;
}

std::vector<int64_t> Agreement::GroupExtents(const Name& name, uint64_t turn) const {
  const size_t each = name.description.extents.size();
  std::vector<int64_t> extents;
  if (each == 0) return extents;
  const std::byte* const span = SpanOf(name, turn);
  const size_t all_bytes = each * static_cast<size_t>(layout_.size()) * sizeof(int64_t);
  if (span == nullptr || all_bytes > static_cast<size_t>(name.span_bytes) / 2) return extents;  // refused by rank 0
  for (int rank : layout_.groups[static_cast<size_t>(layout_.group_of[static_cast<size_t>(rank_)])]) {
    std::vector<int64_t> one(each);
    std::memcpy(one.data(), span + static_cast<size_t>(rank) * each * sizeof(int64_t), each * sizeof(int64_t));
    extents.insert(extents.end(), one.begin(), one.end());
  }
  return extents;
}

// ---- leaving and reporting

void Agreement::Leave() {
  board_.Append({LogKind::kLeft, rank_, 0});
  ring_ = true;
  if (!one_group_) outgoing_.push_back(EncodeIdMessage(MessageKind::kLeave, 0));
}

void Agreement::ReportStuck(Ticket ticket) {
  const auto found = in_flight_.find(ticket);
  if (found == in_flight_.end() || !found->second->counted) return;
  outgoing_.push_back(EncodeIdMessage(MessageKind::kStuck, found->second->id));
}

std::vector<int> Agreement::MissingRanks(Ticket ticket) const {
  std::vector<int> missing;
  const auto found = in_flight_.find(ticket);
  if (found == in_flight_.end() || !found->second->counted || found->second->id < 0) return missing;
  const auto& ranks = layout_.groups[static_cast<size_t>(layout_.group_of[static_cast<size_t>(rank_)])];
  for (size_t m = 0; m < ranks.size(); ++m) {
    if (!board_.HasArrived(static_cast<int>(m), found->second->id, found->second->use)) missing.push_back(ranks[m]);
  }
  return missing;
}

}  // namespace farandole
