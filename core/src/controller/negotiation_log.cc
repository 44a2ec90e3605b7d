// Negotiation: reading the log, and being invited after having joined.
#include <algorithm>

#include "controller/negotiation.h"

namespace farandole {
namespace {

constexpr size_t kInside = 0, kAcross = 1;

Negotiation::Event Broken() {
  return Negotiation::Event::OfRank(Negotiation::Event::kAbort, -1, Unreadable(kCoordinatorRank));
}

}  // namespace

bool Negotiation::HasNews() const {
  return !finished_.empty() || has_unlogged_ || !pending_log_.empty() || !deferred_.empty() || joined_ ||
         memory_.log.Read(head_).has_value() || LeaderHasNews();
}

bool Negotiation::Advance(std::vector<Event>* events) {
  bool moved = ReleaseFinished();
  if (AppendUnlogged()) moved = true;
  if (group_.is_leader() && AdvanceAsLeader()) moved = true;
  const uint64_t before = head_;
  do {
    ReadLog(events);
  } while (HandleDeferred(events));
  if (head_ != before) memory_.log.PublishHead(head_);
  const size_t count = events->size();
  if (takes_part_) Invite(events);
  return moved || head_ != before || events->size() != count;
}

void Negotiation::ReadLog(std::vector<Event>* events) {
  for (;;) {
    const std::optional<LogEntry> entry = memory_.log.Read(head_);
    if (!entry || !Consume(*entry, events)) return;
    ++head_;
    if (head_ == end_[kInside]) EmitBatch(true, events);
  }
}

bool Negotiation::HandleDeferred(std::vector<Event>* events) {
  bool handled = false;
  while (!deferred_.empty()) {
    bool early = false;
    const Status status = Handle(deferred_.front(), events, true, &early);
    if (early) break;
    if (!status.ok()) events->push_back(Broken());
    deferred_.pop_front();
    handled = true;
  }
  return handled;
}

// False when the entry cannot be understood yet: its batch is not sealed, or a message about it is still on the way; or
// it must wait, because a thread of this rank is busy in the span that it gives up.
bool Negotiation::Consume(const LogEntry& entry, std::vector<Event>* events) {
  if (entry.kind == LogKind::kLeft) {
    events->push_back(Event::OfRank(Event::kLeft, entry.id));
    return true;
  }
  if (entry.kind == LogKind::kJoinEnd) return EndJoin(events);
  const auto book = books_.find(entry.set);
  // A set that is gone, or one that we are not in: its entries count where batches end, and mean nothing else.
  const bool mine = book != books_.end() && book->second->set->contains_me();
  Name* const name = mine ? by_id_[static_cast<size_t>(entry.id)] : nullptr;
  if (mine && name == nullptr) return false;
  if (entry.kind == LogKind::kReady) return ConsumeReady(entry, name, events);
  if (mine && MustWaitFor(name->reserved && name->id == entry.id)) return false;
  if (mine) OnRetired(name, entry, events);
  return true;
}

bool Negotiation::ConsumeReady(const LogEntry& entry, Name* name, std::vector<Event>* events) {
  const ProcessSetPtr set = sets_.Find(entry.set);
  const bool inside = !set || set->local();
  if (!EnsureSealed(inside)) return false;
  if (name != nullptr && !Complete(name, entry, inside)) events->push_back(Broken());
  if (!inside && ++across_read_ == end_[kAcross]) EmitBatch(false, events);
  return true;
}

bool Negotiation::EnsureSealed(bool inside) {
  const size_t k = inside ? kInside : kAcross;
  if ((inside ? head_ : across_read_) < end_[k]) return true;
  if (inside) {
    end_[k] = memory_.log.SealOrRead(SealKind::kInside, batch_[k], group_.one_group() ? memory_.log.end() : RunEnd());
  } else {
    const std::optional<uint64_t> end = memory_.log.ReadSeal(SealKind::kAcross, batch_[k]);
    if (!end) return false;
    end_[k] = *end;
  }
  ++batch_[k];
  return true;
}

// Where the run of entries that are no READY of a set across groups ends, as far as it is written.
uint64_t Negotiation::RunEnd() const {
  uint64_t position = head_;
  for (;; ++position) {
    const std::optional<LogEntry> entry = memory_.log.Read(position);
    if (!entry) return position;
    if (entry->kind != LogKind::kReady) continue;
    const ProcessSetPtr set = sets_.Find(entry->set);
    if (!set || !set->local()) return std::max(position, head_ + 1);
  }
}

void Negotiation::EmitBatch(bool inside, std::vector<Event>* events) {
  Event& building = building_[inside ? kInside : kAcross];
  if (building.items.empty()) return;
  events->push_back(std::move(building));
  building = Event();
}

// False when the entry makes no sense: only a message that no coordinator of ours sends leads there.
bool Negotiation::Complete(Name* name, const LogEntry& entry, bool inside) {
  if (!name->in_flight || name->id != entry.id) return false;
  Item item{name->ticket, ReadExtents(*name), -1};
  End(name);
  if (!ChangeSets(*name, &item)) return false;
  building_[inside ? kInside : kAcross].items.push_back(std::move(item));
  ForgetIfRetiring(name);
  return true;
}

// The last use of an id that is retired has ended.
void Negotiation::ForgetIfRetiring(Name* name) {
  if (!std::exchange(name->retiring, false)) return;
  name->inbox.reset();
  Forget(std::exchange(name->id, -1));
  EraseIfIdle(name);
}

// Rank 0 has found before that it can be done.
bool Negotiation::ChangeSets(const Name& name, Item* item) {
  const Signature& signature = name.known;
  if (signature.kind == OpKind::kAddProcessSet) {
    item->new_set = sets_.Add({signature.ranks.begin(), signature.ranks.end()});
    if (item->new_set < 0) return false;
    auto book = std::make_unique<Book>();
    book->set = sets_.Find(item->new_set);
    books_[item->new_set] = std::move(book);
  } else if (signature.kind == OpKind::kRemoveProcessSet) {
    const auto id = static_cast<int>(signature.ranks.at(0));
    if (id != 0) sets_.Remove(id);
    const auto book = books_.find(id);
    if (book == books_.end() || id == 0) return id != 0;
    book->second->removed = true;  // its ids retire one by one
    if (book->second->names.empty()) books_.erase(book);
  }
  return true;
}

void Negotiation::OnRetired(Name* name, const LogEntry& entry, std::vector<Event>* events) {
  const bool current = name->id == entry.id;
  if (current && name->in_flight && name->counted) {
    const bool completed = static_cast<int8_t>(static_cast<uint8_t>(name->use) - entry.uses) < 0;
    if (completed && !name->small) {
      name->retiring = true;  // the last arriver's entry is still to come, or data
      return;
    }
    if (completed) {
      EndWith(Event::kTake, name, events);
    } else if (joined_) {
      EndWith(Event::kWithdrawn, name, events);
    } else {
      if (name->inbox) events->push_back(Event::About(Event::kRecalled, name->ticket));
      LeaveSmall(name);
      name->id = -1;
      Describe(name);
    }
  }
  if (current) {
    name->id = -1;
    name->inbox.reset();
  }
  Forget(entry.id);
  EraseIfIdle(name);
}

void Negotiation::Forget(int id) {
  --by_id_[static_cast<size_t>(id)]->ids_held;
  by_id_[static_cast<size_t>(id)] = nullptr;
  refused_.erase(id);
  opened_.erase(id);
  finished_.push_back(id);
}

bool Negotiation::ReleaseFinished() {
  if (finished_.empty()) return false;
  for (int id : finished_) {
    if (memory_.counters.DoneWith(id, sharers_of_[static_cast<size_t>(id)])) ring_ = true;  // the leader waits for this
  }
  finished_.clear();
  return true;
}

// ---- joined

// Small operations leave no trace in the log. Whoever began one has completed it before it joined, so it is ready.
bool Negotiation::EndJoin(std::vector<Event>* events) {
  // What the others have put to the last eager operations may still be on its way.
  if (!join_result_ || eager_count_ > 0 || AwaitsRelease()) return false;
  ++round_;
  while (!small_.empty()) {
    Name* const name = small_.back();
    EndWith(Event::kTake, name, events);
  }
  events->push_back(std::move(*join_result_));
  join_result_.reset();
  opened_.clear();
  if (joined_.exchange(false)) memory_.counters.ChangeJoined(-1);
  takes_part_ = false;
  return true;
}

// What they said when they came to the name's next use; nothing when nobody has.
std::optional<uint64_t> Negotiation::WhatOthersSaid(const Name& name) const {
  const auto opened = opened_.find(name.id);
  if (opened != opened_.end() && UsesIn(opened->second) >= name.next_turn) return opened->second;
  const ProcessSet& set = *name.book->set;
  if (name.inbox) return WhatOthersPut(name);
  for (int m : group_.MembersIn(set)) {
    if (m == group_.member()) continue;
    const int position = set.PositionOf(group_.RankOf(m));
    const uint64_t said =
        name.small ? CellsOf(name, name.next_turn).LatestOf(position) : memory_.counters.LatestOf(m, name.id);
    if (UsesIn(said) >= name.next_turn) return said;
  }
  return std::nullopt;
}

// Operations that others have begun. The end of the joining stands in the log before anything that they begin after it,
// so having seen them come, one more look at the log says whether we still are to come as well.
void Negotiation::Invite(std::vector<Event>* events) {
  for (int id = 0; id < kMaxIds; ++id) {
    Name* const name = by_id_[static_cast<size_t>(id)];
    if (name == nullptr || name->in_flight || name->id != id) continue;  // an id that the name had before
    const std::optional<uint64_t> said = WhatOthersSaid(*name);
    if (!said) continue;
    if (memory_.log.Read(head_).has_value()) return;
    if (HasRoot(name->known.kind) && name->known.root == group_.rank()) {
      // No data to send: described anew, it is refused.
      if (refused_.insert(name->id).second) outgoing_.push_back(EncodeIdMessage(MessageKind::kStuck, name->id));
      continue;
    }
    Event event;
    event.kind = Event::kInvited;
    event.description = name->description;
    event.description.signature = name->known;
    event.description.turn = TurnIn(*said);
    event.description.extents.assign(name->known.ExtentCount(name->book->set->size()), 0);
    events->push_back(std::move(event));
  }
}

}  // namespace farandole
