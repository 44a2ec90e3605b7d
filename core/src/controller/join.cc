#include "controller/join.h"

#include <utility>

namespace farandole {

// The counter is raised first, so that members that come to an operation from now on wake this one.
void JoinState::Join(const SequenceNumbers& sequence_numbers) {
  joined_ = true;
  memory_.counters.ChangeJoined(+1);
  outbox_.Send(Encode(Joined{group_.rank(), sequence_numbers}));
}

// Until rank 0 has heard of it, the others may still count on this rank to describe and to come.
bool JoinState::OnJoined() {
  if (joined_) takes_part_ = true;
  return joined_;
}

bool JoinState::OnOpen(int id, uint64_t said) {
  if (takes_part_) opened_[id] = said;
  return takes_part_;
}

bool JoinState::OnResult(JoinResult result) {
  if (!joined_ || result.rank < 0 || result.rank >= group_.world().size()) return false;
  result_ = NegotiationEvent::OfRank(NegotiationEvent::kJoinEnd, result.rank);
  result_->sequence_numbers = std::move(result.sequence_numbers);
  return true;
}

void JoinState::End(NegotiationEvents* events) {
  ++round_;
  events->push_back(std::move(*result_));
  result_.reset();
  opened_.clear();
  if (joined_.exchange(false)) memory_.counters.ChangeJoined(-1);
  takes_part_ = false;
}

void JoinState::Forget(int id) {
  refused_.erase(id);
  opened_.erase(id);
}

// What they said when they came to the name's next use; nothing when nobody has.
std::optional<uint64_t> JoinState::WhatOthersSaid(const Name& name) const {
  const auto opened = opened_.find(name.id);
  if (opened != opened_.end() && UsesIn(opened->second) >= name.next_use) return opened->second;
  const ProcessSet& set = name.set();
  if (name.inbox) return name.inbox->Said(set, name.next_use, round_);
  for (int m : group_.MembersIn(set)) {
    if (m == group_.member()) continue;
    const uint64_t said = in_flight_.SaidBy(m, group_.RankOf(m), name, name.next_use);
    if (UsesIn(said) >= name.next_use) return said;
  }
  return std::nullopt;
}

// The end of the joining stands in the log before anything that the others begin after it. So having seen them come,
// one more look at the log says whether this rank is still to come as well.
void JoinState::Invite(uint64_t head, NegotiationEvents* events) {
  for (int id = 0; id < kMaxIds; ++id) {
    const Name* const name = names_.Current(id);
    if (name == nullptr || name->in_flight) continue;
    const std::optional<uint64_t> said = WhatOthersSaid(*name);
    if (!said) continue;
    if (memory_.log.Read(head).has_value()) return;
    if (HasRoot(name->known.kind) && name->known.root == group_.rank()) {
      // No data to send: described anew, it is refused.
      if (refused_.insert(id).second) outbox_.Send(MessageKind::kStuck, id);
      continue;
    }
    events->push_back(InvitationTo(*name, *said));
  }
}

// As the others mean it, with zeros for counts: this rank adds no rows.
NegotiationEvent JoinState::InvitationTo(const Name& name, uint64_t said) {
  NegotiationEvent event;
  event.kind = NegotiationEvent::kInvited;
  event.description = name.description;
  event.description.signature = name.known;
  event.description.sequence_number = SequenceNumberIn(said);
  event.description.counts.assign(name.known.CountsPerRank(name.set().size()), 0);
  return event;
}

}  // namespace farandole
