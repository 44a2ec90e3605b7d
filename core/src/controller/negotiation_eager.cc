// Negotiation: eager operations, whose data come from other ranks.
#include "controller/negotiation.h"

namespace farandole {

// A rank that has put to a use has come to the ones before, too, and no use can begin before all have come to the one
// before: so what comes is for the use in flight here, or for the next one.
Status Negotiation::OnPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox) {
  const auto id = static_cast<size_t>(put.id);
  if (put.serial > last_serial_) return OnEarlyPut(from, put, inbox);
  const Name* const name = by_id_[id];
  const bool retired = name == nullptr || put.serial != serial_of_[id] || name->id != put.id;
  if (retired) return put.payload_bytes > Inbox::kMostBytes ? Unreadable(from) : Status::Ok();
  const uint64_t use = UsesIn(put.sequence);
  const bool current = name->in_flight && name->counted && use + 1 == name->next_turn;
  const bool is_other = from != group_.rank() && name->book->set->PositionOf(from) >= 0;
  if (!name->inbox || !is_other || (use != name->next_turn && !current)) return Unreadable(from);
  return Announce(from, put, name->inbox, inbox);
}

// Others may have heard of the id before us, and come to its second use while they are still at work on the first.
Status Negotiation::OnEarlyPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox) {
  const bool known = early_.count(put.serial) > 0;
  if (UsesIn(put.sequence) != 1 || from == group_.rank() || (!known && early_.size() >= kMaxIds))
    return Unreadable(from);
  std::shared_ptr<Inbox>& early = early_[put.serial];
  if (!early) early = std::make_shared<Inbox>(group_.world().size());
  return Announce(from, put, early, inbox);
}

Status Negotiation::Announce(int from, const EagerPut& put, const std::shared_ptr<Inbox>& to,
                             std::shared_ptr<Inbox>* inbox) {
  if (put.payload_bytes > 0 && !to->Expect(put.payload_bytes)) return Unreadable(from);
  Inbox::Slot& slot = to->at(UsesIn(put.sequence), from);
  const bool again = slot.sequence != 0;
  if (again && (slot.sequence != put.sequence || slot.has_data || put.payload_bytes == 0)) return Unreadable(from);
  slot.sequence = put.sequence;
  slot.round = put.round;
  slot.has_data = put.payload_bytes > 0;
  *inbox = to;
  return Status::Ok();
}

void Negotiation::EndEager(Ticket ticket) {
  Name* const name = in_flight_.Find(ticket);
  End(name);
  ForgetIfRetiring(name);
}

std::vector<int> Negotiation::MissingPuts(const Name& name) const {
  std::vector<int> missing;
  for (int rank : name.book->set->ranks) {
    if (rank != group_.rank() && !name.inbox->IsComplete(name.inbox->at(name.next_turn - 1, rank)))
      missing.push_back(rank);
  }
  return missing;
}

// Eager data come on a way of their own, so they may be here before we have read that the joining has ended: then they
// are of the next round.
std::optional<uint64_t> Negotiation::WhatOthersPut(const Name& name) const {
  for (int rank : name.book->set->ranks) {
    const Inbox::Slot& slot = name.inbox->at(name.next_turn, rank);
    if (slot.round == round_ && UsesIn(slot.sequence) >= name.next_turn) return slot.sequence;
  }
  return std::nullopt;
}

}  // namespace farandole
