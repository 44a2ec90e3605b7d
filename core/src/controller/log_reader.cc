#include "controller/log_reader.h"

#include <algorithm>
#include <utility>

namespace farandole {

void LogReader::Read(NegotiationEvents* events) {
  for (;;) {
    const std::optional<LogEntry> entry = memory_.log.Read(head_);
    if (!entry || !Consume(*entry, events)) return;
    ++head_;
    if (head_ == batches_[kInside].end) Emit(kInside, events);
  }
}

// Returns false when the entry cannot be understood yet, because its batch's end is unknown or a message about it is
// still on the way. It also does when the entry must wait for a thread of this rank that is busy in the span.
bool LogReader::Consume(const LogEntry& entry, NegotiationEvents* events) {
  if (entry.kind == LogKind::kLeft) {
    events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kLeft, entry.id));
    return true;
  }
  if (entry.kind == LogKind::kJoinEnd) return EndJoin(events);
  const SetNames* const names = names_.Names(entry.set);
  // Entries of a removed set, or of one without this rank, count for where batches end, and have no other effect.
  const bool mine = names != nullptr && names->set->contains_me();
  Name* const name = mine ? names_.at(entry.id) : nullptr;
  if (mine && name == nullptr) return false;
  if (entry.kind == LogKind::kReady) return ConsumeReady(entry, name, events);
  if (mine && in_flight_.MustWaitFor(name->reserved && name->id == entry.id)) return false;
  if (mine) OnRetired(name, entry, events);
  return true;
}

// ---- batches

bool LogReader::ConsumeReady(const LogEntry& entry, Name* name, NegotiationEvents* events) {
  const Where where = IsInside(entry.set) ? kInside : kAcross;
  if (!FindEnd(where)) return false;
  if (name != nullptr && !Complete(name, entry.id, where)) {
    // Only a faulty message leads here.
    events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAbort, -1, Unreadable(kCoordinatorRank)));
  }
  if (where == kAcross && ++across_read_ == batches_[kAcross].end) Emit(kAcross, events);
  return true;
}

// A removed set counts as one inside the group.
bool LogReader::IsInside(int set) const {
  const ProcessSetPtr found = names_.FindSet(set);
  return !found || found->local();
}

// Finds where the entry's batch ends. Inside the group the first reader decides, from what is written by then. Returns
// false while the leader of a set across groups has not said so.
bool LogReader::FindEnd(Where where) {
  Batches& batches = batches_[where];
  if ((where == kInside ? head_ : across_read_) < batches.end) return true;
  if (where == kInside) {
    const uint64_t proposed = group_.one_group() ? memory_.log.end() : RunEnd();
    batches.end = memory_.log.DecideBatchEnd(BatchKind::kInside, batches.next, proposed);
  } else {
    const std::optional<uint64_t> end = memory_.log.ReadBatchEnd(BatchKind::kAcross, batches.next);
    if (!end) return false;
    batches.end = *end;
  }
  ++batches.next;
  return true;
}

// Returns where the run of entries before the next READY of a set across groups ends, as far as it is written.
uint64_t LogReader::RunEnd() const {
  uint64_t position = head_;
  for (;; ++position) {
    const std::optional<LogEntry> entry = memory_.log.Read(position);
    if (!entry) return position;
    if (entry->kind != LogKind::kReady) continue;
    const ProcessSetPtr set = names_.FindSet(entry->set);
    if (!set || !set->local()) return std::max(position, head_ + 1);
  }
}

void LogReader::Emit(Where where, NegotiationEvents* events) {
  NegotiationEvent& building = batches_[where].building;
  if (building.items.empty()) return;
  events->push_back(std::move(building));
  building = NegotiationEvent();
}

// Returns false for an impossible entry.
bool LogReader::Complete(Name* name, int id, Where where) {
  if (!name->in_flight || name->id != id) return false;
  const auto set_size = static_cast<size_t>(name->set().size());
  const size_t count = name->known.CountsPerRank(name->set().size()) * set_size;
  NegotiationEvent::Item item{name->ticket, memory_.spans.ReadCounts(name->span, name->next_use - 1, 0, count), -1};
  in_flight_.End(name);
  if (!names_.ChangeSets(name->known, &item.new_set)) return false;
  batches_[where].building.items.push_back(std::move(item));
  ForgetIfRetiring(name);
  return true;
}

// ---- ids that retire

bool LogReader::IsCompleted(const Name& name, uint8_t uses) {
  return static_cast<int8_t>(static_cast<uint8_t>(name.use) - uses) < 0;
}

void LogReader::OnRetired(Name* name, const LogEntry& entry, NegotiationEvents* events) {
  const bool current = name->id == entry.id;
  if (current && name->in_flight && name->counted && !EndUse(name, entry.uses, events)) return;
  if (current) {
    name->id = -1;
    name->arrivals.reset();
  }
  Forget(entry.id);
  names_.EraseIfIdle(name);
}

// Ends the use in flight if it was completed, else describes it anew. Returns false when it is complete, but its entry
// in the log, its data or the other ranks' shares have still to come.
bool LogReader::EndUse(Name* name, uint8_t uses, NegotiationEvents* events) {
  const bool completed = IsCompleted(*name, uses);
  if (completed && (!name->small() || in_flight_.IsLarge(*name))) {
    if (name->small() && !in_flight_.HasReduced(*name, name->set().position))
      events->push_back(NegotiationEvent::About(NegotiationEvent::kTake, name->ticket));
    name->retiring = true;
    return false;
  }
  if (completed) {
    in_flight_.EndWith(NegotiationEvent::kTake, name, events);
  } else if (join_.joined()) {
    in_flight_.EndWith(NegotiationEvent::kWithdrawn, name, events);
  } else {
    if (name->arrivals) events->push_back(NegotiationEvent::About(NegotiationEvent::kRecalled, name->ticket));
    in_flight_.Uncount(name);
    name->id = -1;
    outbox_.Send(Encode(MessageKind::kDescribe, name->description));
  }
  return true;
}

bool LogReader::ForgetIfRetiring(Name* name) {
  if (!std::exchange(name->retiring, false)) return false;
  name->arrivals.reset();
  Forget(std::exchange(name->id, -1));
  names_.EraseIfIdle(name);
  return true;
}

void LogReader::Forget(int id) {
  names_.Forget(id);
  join_.Forget(id);
  finished_.push_back(id);  // has room
  has_finished_.store(true, std::memory_order_relaxed);
}

bool LogReader::ReleaseFinished(NegotiationEvents* events) {
  if (finished_.empty()) return false;
  for (int id : finished_) {
    if (const uint32_t serial = names_.early_serial_of(id); serial != 0) {
      events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kIdRetired, -1));
      events->back().serial = serial;
    }
    if (memory_.counters.DoneWith(id, names_.sharers_of(id))) outbox_.Ring();  // the leader waits for this
  }
  finished_.clear();
  has_finished_.store(false, std::memory_order_relaxed);
  return true;
}

// ---- joining and leaving

// Small operations are not in the log. Each rank completed its own before it joined, so those here are ready: the
// driver takes large ones first. Data for the last early operations may still be on their way.
bool LogReader::EndJoin(NegotiationEvents* events) {
  if (!join_.HasResult() || in_flight_.early_count() > 0 || in_flight_.HasLarge()) return false;
  in_flight_.TakeAll(events);
  join_.End(events);
  return true;
}

void LogReader::AddLeaving(std::set<int>* leaving) const {
  uint64_t position = head_;
  while (const std::optional<LogEntry> entry = memory_.log.Read(position++)) {
    if (entry->kind == LogKind::kLeft) leaving->insert(entry->id);
  }
}

}  // namespace farandole
