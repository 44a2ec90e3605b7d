#include "controller/negotiation.h"

#include <algorithm>
#include <cstring>

#include "common/cache.h"

namespace farandole {
Negotiation::Negotiation(const Layout& layout, int rank, std::byte* memory, const Limits& limits)
    : limits_(limits),
      group_(layout, rank),
      memory_(memory, group_.member(), group_.size(), limits.log_entries),
      sets_(layout, rank) {
  books_[0] = std::make_unique<Book>();
  books_[0]->set = sets_.Find(0);
  everybody_ = books_[0].get();
}

Negotiation::~Negotiation() = default;

Negotiation::Event Negotiation::Event::About(Kind kind, Ticket ticket) {
  Event event;
  event.kind = kind;
  event.items.push_back({ticket, {}, -1});
  return event;
}

Negotiation::Event Negotiation::Event::OfRank(Kind kind, int rank, Status status) {
  Event event;
  event.kind = kind;
  event.rank = rank;
  event.status = std::move(status);
  return event;
}

// ---- submitting

// Why the operation cannot begin on this rank; kOk when it can.
Status Negotiation::Refusal(const Proposal& proposal, const Book* book) const {
  if (book == nullptr || !book->IsOpen()) return NoProcessSet(proposal.set(), group_.rank());
  if (!book->set->contains_me()) {
    return Invalid("rank " + std::to_string(group_.rank()) + " is not in process set " +
                   std::to_string(proposal.set()) + " and cannot take part in its operations");
  }
  return Status::Ok();
}

Negotiation::Book* Negotiation::FindBook(int set) const {
  if (set == 0) return everybody_;
  const auto found = books_.find(set);
  return found == books_.end() ? nullptr : found->second.get();
}

Status Negotiation::Submit(const Proposal& proposal, Plan* plan) {
  Book* const book = FindBook(proposal.set());
  FRD_RETURN_IF_ERROR(Refusal(proposal, book));
  std::unique_ptr<Name>& slot = book->names[proposal.name()];
  if (!slot) slot = std::make_unique<Name>();
  Name* const name = slot.get();
  if (name->in_flight) {
    const std::string first = name->description.site.empty() ? "" : " (submitted at " + name->description.site + ")";
    return Invalid(name->description.Title() + " is already in flight on rank " + std::to_string(group_.rank()) +
                   first + "; wait for it before you submit that name again, or give it another name");
  }
  name->book = book;
  if (name->id >= 0 && proposal.Means(name->known)) {
    plan->ticket = Begin(name);
    if (plan->set != book->set) plan->set = book->set;  // counting references costs more than looking
    PlanKnown(name, proposal, plan);
    return Status::Ok();
  }
  Description description = proposal.Describe();
  if (description.signature.kind == OpKind::kRemoveProcessSet) {
    const auto removed = static_cast<int>(description.signature.ranks.at(0));
    FRD_RETURN_IF_ERROR(CanRemove(removed));
    CloseSet(removed);
  }
  plan->ticket = Begin(name);
  plan->set = book->set;
  name->description = std::move(description);
  name->id = -1;
  Describe(name);
  return Status::Ok();
}

const ProcessSetPtr* Negotiation::SubmitSmall(const Proposal& proposal, Plan* plan) {
  Book* const book = FindBook(proposal.set());
  if (book == nullptr || !book->IsOpen() || !book->set->contains_me()) return nullptr;
  const auto found = book->names.find(proposal.name());
  if (found == book->names.end()) return nullptr;
  Name* const name = found->second.get();
  if (!name->small || name->in_flight || name->id < 0 || !proposal.Means(name->known)) return nullptr;
  plan->ticket = Begin(name);
  PlanKnown(name, proposal, plan);
  return &book->set;
}

Status Negotiation::CanRemove(int id) const {
  const auto book = books_.find(id);
  if (book == books_.end()) return Status::Ok();  // rank 0 says that there is none
  for (const auto& [key, name] : book->second->names) {
    if (name->in_flight) return InUse(id, name->description.Title(), group_.rank());
  }
  return Status::Ok();
}

// Nothing may begin in a set while the ranks agree on its removal.
void Negotiation::CloseSet(int id) {
  const auto book = books_.find(id);
  if (book != books_.end() && id != 0) ++book->second->removals;
}

Ticket Negotiation::Begin(Name* name) {
  name->in_flight = true;
  name->counted = false;
  return name->ticket = in_flight_.Add(name);
}

void Negotiation::End(Name* name) {
  LeaveSmall(name);
  in_flight_.Remove(name->ticket);
  name->in_flight = false;
}

void Negotiation::EndWith(Event::Kind kind, Name* name, std::vector<Event>* events) {
  events->push_back(Event::About(kind, name->ticket));
  End(name);
}

void Negotiation::EnterSmall(Name* name) {
  name->small_at = small_.size();
  small_.push_back(name);
  small_count_.store(small_.size(), std::memory_order_relaxed);
}

void Negotiation::LeaveSmall(Name* name) {
  if (name->counted && name->inbox) --eager_count_;
  if (!name->counted || !name->small || name->reserved) return;
  small_[name->small_at] = small_.back();
  small_[name->small_at]->small_at = name->small_at;
  small_.pop_back();
  small_count_.store(small_.size(), std::memory_order_relaxed);
}

void Negotiation::PlanKnown(Name* name, const Proposal& proposal, Plan* plan) {
  name->description.turn = plan->turn = proposal.turn();
  if (name->description.site != proposal.site()) name->description.site = proposal.site();  // nearly always the same
  name->counted = true;
  plan->id = name->id;
  plan->use = name->use = name->next_turn - 1;
  const uint64_t turn = name->next_turn++;
  if (turn == limits_.most_uses) outgoing_.push_back(EncodeIdMessage(MessageKind::kStuck, name->id));
  if (name->small) {
    // A copy of it would cost 5 ns.
    plan->cells.emplace(memory_.spans.BufferOf(name->span, turn), name->book->set->size(), name->payload_bytes);
    plan->large = IsLarge(*name);
    plan->large ? Reserve(name) : EnterSmall(name);
  } else if (name->inbox) {
    plan->inbox = name->inbox;
    plan->serial = serial_of_[static_cast<size_t>(name->id)];
    plan->round = round_;
    ++eager_count_;
  } else if (name->has_extents) {
    name->description.extents = proposal.Extents();
    const std::vector<int64_t>& extents = name->description.extents;
    memory_.spans.WriteExtents(name->span, turn, static_cast<size_t>(plan->set->position) * extents.size(), extents);
  }
}

void Negotiation::Describe(Name* name) {
  name->counted = false;
  outgoing_.push_back(Encode(MessageKind::kDescribe, name->description));
}

Negotiation::Arrived Negotiation::Arrive(const Plan& plan) {
  const int sharers = sharers_of_[static_cast<size_t>(plan.id)];
  const ArrivalCounters::Arrival arrival = memory_.counters.Arrive(plan.id, plan.sequence(), sharers);
  if (arrival.retired) return Arrived::kRetired;
  if (!arrival.last) return Arrived::kCounted;
  if (plan.turn < 0 || AllMean(plan)) return Arrived::kLast;
  // Ranks that disagreed before are a window apart: nobody has come, and the coordinator pairs them by turn.
  memory_.counters.TakeBack(plan.id, sharers);
  outgoing_.push_back(EncodeIdMessage(MessageKind::kStuck, plan.id));
  return Arrived::kCounted;
}

bool Negotiation::AllMean(const Plan& plan) const {
  const std::vector<int> members = group_.MembersIn(*plan.set);
  return std::all_of(members.begin(), members.end(),
                     [&](int m) { return memory_.counters.LatestOf(m, plan.id) == plan.sequence(); });
}

bool Negotiation::Redescribe(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  name->id = -1;
  if (joined_) {
    End(name);
    return false;
  }
  LeaveSmall(name);
  Describe(name);
  return true;
}

bool Negotiation::CompleteTogether(const Plan& plan) {
  if (plan.set->local()) return memory_.log.TryAppend({LogKind::kReady, plan.id, 0, plan.set->id});
  memory_.log.PushCompleted(plan.id);
  return true;
}

void Negotiation::CompleteLater(const Plan& plan) {
  unlogged_.push_back({LogKind::kReady, plan.id, 0, plan.set->id});
  has_unlogged_ = true;
}

bool Negotiation::AppendUnlogged() {
  const size_t before = unlogged_.size();
  while (!unlogged_.empty() && memory_.log.TryAppend(unlogged_.front())) unlogged_.pop_front();
  has_unlogged_ = !unlogged_.empty();
  if (unlogged_.size() != before) ring_ = true;
  return unlogged_.size() != before;
}

// ---- small operations

// A leader that retires the id sets its flag first and counts then; we look for the flag after we have seen everybody.
// If we do not see the flag, the leader sees everybody, too, and the use counts as completed for all.
bool Negotiation::IsReady(const Plan& plan) const {
  if (!plan.cells->AllHavePut(plan.sequence())) return false;
  LoadLoadFence();
  return !memory_.counters.IsRetired(plan.id);
}

std::vector<Ticket> Negotiation::ReadySmall() const {
  std::vector<Ticket> ready;
  for (const Name* name : small_) {
    if (!CellsOf(*name, name->next_turn - 1).AllHavePut(SequenceOf(name->use, name->description.turn))) continue;
    LoadLoadFence();
    if (!memory_.counters.IsRetired(name->id)) ready.push_back(name->ticket);
  }
  return ready;
}

void Negotiation::AskForBells() {
  for (const Name* name : small_) CellsOf(*name, name->next_turn - 1).AskForBell(name->book->set->position);
}

bool Negotiation::TakeReady(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  if (name == nullptr || !name->counted || !name->small || name->reserved) return false;
  CellsOf(*name, name->next_turn).AskForLinesOf(name->book->set->position);
  if (IsLarge(*name)) {
    LeaveSmall(name);
    Reserve(name);
    name->taken = true;
  } else {
    End(name);
  }
  return true;
}

bool Negotiation::IsLarge(const Name& name) const { return name.payload_bytes > limits_.locked_bytes; }

void Negotiation::Reserve(Name* name) {
  name->reserved = true;
  name->taken = false;
  ++reserved_count_;
}

bool Negotiation::Release(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  if (name == nullptr || !name->reserved) return false;
  --reserved_count_;
  if (name->taken) End(name);
  name->reserved = false;
  if (name->in_flight) EnterSmall(name);
  return reserved_count_ == 0 ? std::exchange(waits_for_release_, false) : waits_for_release_;
}

bool Negotiation::MustWaitFor(bool reserved) {
  waits_for_release_ = waits_for_release_ || reserved;
  return reserved;
}

CellBuffer Negotiation::CellsOf(const Name& name, uint64_t turn) const {
  return memory_.spans.CellsOf(name.span, turn, name.book->set->size(), name.payload_bytes);
}

std::vector<int64_t> Negotiation::ReadExtents(const Name& name) const {
  const ProcessSet& set = *name.book->set;
  const size_t count = name.known.ExtentCount(set.size()) * static_cast<size_t>(set.size());
  return memory_.spans.ReadExtents(name.span, name.next_turn - 1, 0, count);
}

// Names that come once and never again must not fill the memory.
void Negotiation::EraseIfIdle(Name* name) {
  if (name->id >= 0 || name->in_flight || name->ids_held > 0) return;
  Book* const book = name->book;
  const std::string key = name->description.name;  // a copy: erasing by a reference into the erased is undefined
  book->names.erase(key);
  if (book->removed && book->names.empty()) books_.erase(book->set->id);
}

// ---- joining, leaving and reporting

void Negotiation::Join(const Turns& turns) {
  joined_ = true;
  memory_.counters.ChangeJoined(+1);
  outgoing_.push_back(Encode(Joined{group_.rank(), turns}));
}

void Negotiation::Leave() {
  // A log that stays full has a reader that is dead, and then nobody needs to be told.
  constexpr int kPatience = 10'000;
  for (int i = 0; i < kPatience && !memory_.log.TryAppend({LogKind::kLeft, group_.rank(), 0, 0}); ++i)
    memory_.log.PublishHead(head_ = memory_.log.end());
  ring_ = true;
  if (!group_.one_group()) outgoing_.push_back(EncodeIdMessage(MessageKind::kLeave, 0));
}

// What stands before it waits for a message, a seal or room in the log, which may take longer than their leaving.
std::set<int> Negotiation::Leaving() const {
  std::set<int> leaving;
  if (coordinator_leaves_) leaving.insert(kCoordinatorRank);
  const auto look_at = [&leaving](const LogEntry& entry) {
    if (entry.kind == LogKind::kLeft) leaving.insert(entry.id);
  };
  uint64_t position = head_;
  while (const std::optional<LogEntry> entry = memory_.log.Read(position++)) look_at(*entry);
  for (const auto& pending : pending_log_) look_at(pending.entry);
  for (const Bytes& message : deferred_) {
    ByteReader reader(message);
    if (reader.Get<MessageKind>() != MessageKind::kLeft) continue;
    const auto left = Decode<IdMessage>(&reader);
    if (reader.AtEnd()) leaving.insert(left.id);
  }
  return leaving;
}

void Negotiation::ReportStuck(Ticket ticket) {
  const Name* const name = in_flight_.Find(ticket);
  if (name == nullptr || !name->counted) return;
  outgoing_.push_back(EncodeIdMessage(MessageKind::kStuck, name->id));
}

void Negotiation::AskWhom() { outgoing_.push_back(EncodeIdMessage(MessageKind::kWhom, 0)); }

void Negotiation::Ask(const std::vector<int>& ranks) {
  outgoing_.push_back(Encode(Asked{{ranks.begin(), ranks.end()}}));
}

void Negotiation::Answer(int asker, const Whereabouts& where) { outgoing_.push_back(Encode(Answered{asker, where})); }

void Negotiation::TellOfRefusal(int64_t turn, const std::string& text) {
  outgoing_.push_back(Encode(Refused{group_.rank(), turn, text}));
}

std::vector<int> Negotiation::MissingRanks(Ticket ticket) const {
  std::vector<int> missing;
  const Name* const name = in_flight_.Find(ticket);
  if (name == nullptr || !name->counted || name->id < 0) return missing;
  if (name->inbox) return MissingPuts(*name);
  const ProcessSet& set = *name->book->set;
  for (int m : group_.MembersIn(set)) {
    const int rank = group_.RankOf(m);
    const bool here = name->small
                          ? UsesIn(CellsOf(*name, name->next_turn - 1).LatestOf(set.PositionOf(rank))) > name->use
                          : UsesIn(memory_.counters.LatestOf(m, name->id)) > name->use;
    if (!here) missing.push_back(rank);
  }
  return missing;
}

std::vector<Absence> Negotiation::NeededFor() const {
  std::vector<Absence> needed;
  for (int id = 0; id < kMaxIds; ++id) {
    const Name* const name = by_id_[static_cast<size_t>(id)];
    if (name == nullptr || name->id != id || name->in_flight || name->inbox || !name->book->set->contains_me())
      continue;
    const ProcessSet& set = *name->book->set;
    int64_t turn = -1;
    std::vector<int64_t> here;
    for (int m : group_.MembersIn(set)) {
      const int rank = group_.RankOf(m);
      const uint64_t latest = name->small ? CellsOf(*name, name->next_turn).LatestOf(set.PositionOf(rank))
                                          : memory_.counters.LatestOf(m, id);
      if (rank == group_.rank() || UsesIn(latest) < name->next_turn) continue;
      turn = TurnIn(latest);
      here.push_back(rank);
    }
    if (here.empty()) continue;
    Description said = name->description;
    said.turn = turn;
    needed.push_back({said.Title(), {group_.rank()}, std::move(here)});
  }
  return needed;
}

}  // namespace farandole
