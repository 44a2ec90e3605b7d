#include "controller/join.h"

#include <utility>

namespace farandole {

// Raises the counter first, so that members that arrive at an operation from now on wake this one.
void JoinState::Join(const SequenceNumbers& sequence_numbers) {
  joined_ = true;
  memory_.counters.ChangeJoined(+1);
  outbox_.Send(Encode(MessageKind::kJoin, Joined{group_.rank(), sequence_numbers}));
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

bool JoinState::OnResult(Joined result) {
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

std::map<int, uint64_t> JoinState::OthersAt(const Name& name) const {
  const ProcessSet& set = name.set();
  std::map<int, uint64_t> others;
  if (name.arrivals) others = name.arrivals->ArrivedAt(set, name.next_use, round_);
  for (int m : group_.MembersIn(set)) {
    if (m == group_.member()) continue;
    const int rank = group_.RankOf(m);
    const uint64_t said = in_flight_.SaidBy(m, rank, name, name.next_use);
    if (UsesIn(said) >= name.next_use) others[rank] = said;
  }
  return others;
}

// The log has the end of a join before anything that others begin after it. So after this rank has seen others arrive,
// one more look at the log tells whether the join may have ended, and then nothing is an invitation.
void JoinState::Invite(uint64_t head, NegotiationEvents* events) {
  for (int id = 0; id < kMaxIds; ++id) {
    const Name* const name = names_.Current(id);
    if (name == nullptr || name->in_flight) continue;
    const auto opened = opened_.find(id);
    const bool is_open = opened != opened_.end() && UsesIn(opened->second) >= name->next_use;
    const std::map<int, uint64_t> others = OthersAt(*name);
    if (!is_open && others.empty()) continue;
    if (memory_.log.Read(head).has_value()) return;
    if (HasRoot(name->known.kind) && name->known.root == group_.rank()) {
      // This rank has no data to send. Described anew, the operation is refused.
      if (refused_.insert(id).second) outbox_.Send(MessageKind::kStuck, id);
      continue;
    }
    events->push_back(InvitationTo(*name, is_open ? opened->second : others.begin()->second));
  }
}

// The operation as the others mean it. Its counts are zero, since this rank adds no rows.
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
