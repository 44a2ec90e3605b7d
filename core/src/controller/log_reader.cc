#include "controller/log_reader.h"

#include <algorithm>
#include <utility>

namespace farandole {

void LogReader::Read(NegotiationEvents* events) {
  for (;;) {
    const std::optional<LogEntry> entry = memory_.log.Read(head_);
    if (!entry || !Consume(*entry, events)) return;
    ++head_;
    if (head_ == batch_end_) Emit(&intra_node_, events);
  }
}

// Returns false if the entry must be read again later: its ASSIGN has not arrived.
bool LogReader::Consume(const LogEntry& entry, NegotiationEvents* events) {
  if (entry.kind == LogKind::kLeft) {
    events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kLeft, entry.rank()));
    return true;
  }
  if (entry.kind == LogKind::kJoinEnd) {
    if (!join_.HasResult()) return false;
    join_.End(events);
    return true;
  }
  if (entry.kind == LogKind::kEndOfBatch) {
    Emit(&inter_node_, events);
    return true;
  }
  if (entry.kind == LogKind::kReady) FindEnd();
  const SetNames* const names = names_.Names(entry.set);
  // Entries of a removed set, or of one without this rank, have no other effect.
  if (names == nullptr || !names->set->contains_me()) return true;
  Name* const name = names_.at(entry.id);
  if (name == nullptr) return false;
  if (entry.kind == LogKind::kEvicted) {
    OnEvicted(name, entry, events);
  } else if (!HandleReady(name, entry.id, entry.kind == LogKind::kReady ? &intra_node_ : &inter_node_)) {
    // Not reachable unless rank 0 sends an invalid LOG.
    events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kAbort, -1, Unreadable(kCoordinatorRank)));
  }
  return true;
}

// ---- batches

// Finds where the entry's batch ends. The first reader decides, from what is written by then.
void LogReader::FindEnd() {
  if (head_ < batch_end_) return;
  batch_end_ = memory_.log.DecideBatchEnd(next_batch_++, RunEnd());
}

// Returns where the run of entries before the next one of a set across nodes ends, as far as it is written.
uint64_t LogReader::RunEnd() const {
  for (uint64_t position = head_;; ++position) {
    const std::optional<LogEntry> entry = memory_.log.Read(position);
    if (!entry || entry->kind == LogKind::kReadyInterNode) return position;
  }
}

void LogReader::Emit(NegotiationEvent* batch, NegotiationEvents* events) {
  if (!batch->items.empty()) events->push_back(std::exchange(*batch, NegotiationEvent()));
}

// Returns false for an impossible entry.
bool LogReader::HandleReady(Name* name, int id, NegotiationEvent* batch) {
  if (name->in_flight == name->outside || name->id != id) return false;
  const auto set_size = static_cast<size_t>(name->set().size());
  const size_t count = name->properties.counts_per_rank * set_size;
  NegotiationEvent::Item item{name->ticket, memory_.buffers.ReadCounts(name->properties.buffers, name->use, 0, count),
                              -1};
  if (!name->outside) in_flight_.End(name);
  if (!names_.ChangeSets(name->description.signature, &item.new_set)) return false;
  if (!name->outside) batch->items.push_back(std::move(item));
  ForgetIfEvicting(name);
  return true;
}

// ---- ids that are evicted

bool LogReader::IsCompleted(const Name& name, uint8_t uses) {
  return static_cast<int8_t>(static_cast<uint8_t>(name.use) - uses) <= 0;
}

void LogReader::OnEvicted(Name* name, const LogEntry& entry, NegotiationEvents* events) {
  const bool current = name->id == entry.id;
  if (current && name->in_flight && name->counted && !EndUse(name, entry.uses, events)) return;
  if (current) name->id = -1;
  Forget(entry.id);
  names_.EraseIfIdle(name);
}

// Ends the use in flight if it was completed, else describes it anew. Returns false when it is complete, but its entry
// in the log, its data or the other ranks' shares have still to come.
bool LogReader::EndUse(Name* name, uint8_t uses, NegotiationEvents* events) {
  const bool completed = IsCompleted(*name, uses);
  if (completed && (!name->small() || in_flight_.IsTwoPhase(*name))) {
    if (name->small() && !in_flight_.HasReduced(*name, name->set().position))
      events->push_back(NegotiationEvent::About(NegotiationEvent::kTake, name->ticket));
    name->evicting = true;
    return false;
  }
  if (completed) {
    in_flight_.EndWith(NegotiationEvent::kTake, name, events);
  } else {
    if (name->properties.early())
      events->push_back(NegotiationEvent::About(NegotiationEvent::kCancelled, name->ticket));
    in_flight_.CancelArrival(name);
    name->id = -1;
    outbox_.Send(Encode(MessageKind::kDescribe, name->description));
  }
  return true;
}

bool LogReader::ForgetIfEvicting(Name* name) {
  if (!std::exchange(name->evicting, false)) return false;
  Forget(std::exchange(name->id, -1));
  names_.EraseIfIdle(name);
  return true;
}

void LogReader::Forget(int id) {
  names_.Forget(id);
  finished_.push_back(id);  // has room
  has_finished_.store(true, std::memory_order_relaxed);
}

bool LogReader::ReleaseFinished(NegotiationEvents* events) {
  if (finished_.empty()) return false;
  for (int id : finished_) {
    const IdProperties& properties = names_[id].properties;
    if (properties.early()) {
      events->push_back(NegotiationEvent::OfRank(NegotiationEvent::kIdEvicted, -1));
      events->back().serial = properties.serial;
    }
    if (memory_.counters.DoneWith(id, properties.local_members)) outbox_.Ring();  // the leader waits
  }
  finished_.clear();
  has_finished_.store(false, std::memory_order_relaxed);
  return true;
}

// ---- leaving

void LogReader::AddLeaving(std::set<int>* leaving) const {
  uint64_t position = head_;
  while (const std::optional<LogEntry> entry = memory_.log.Read(position++)) {
    if (entry->kind == LogKind::kLeft) leaving->insert(entry->rank());
  }
}

}  // namespace farandole
