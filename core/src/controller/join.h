// Ranks without data, which take part in the operations of the others until all have joined.
#pragma once

#include <optional>
#include <utility>

#include "controller/admission.h"
#include "controller/messages.h"
#include "controller/node_memory.h"

namespace farandole {

// Owns whether this rank has joined. Thread rule: the lock of Operations.
//
// Rank 0 closes the ids of a rank that joins, and assigns ids only for single uses until all have joined. So a rank
// that has joined counts no arrivals, and ASSIGN is its invitation. Rank 0 sends that after it has heard of the join:
// a rank that helps another to its last operation is never heard of behind it.
class JoinState {
 public:
  JoinState(const NodeMembers& node, Outbox* outbox) : node_(node), outbox_(*outbox) {}

  bool joined() const { return joined_; }
  bool HasResult() const { return result_.has_value(); }

  // REQUIRES: nothing in flight.
  void Join(const SequenceNumbers& sequence_numbers) {
    joined_ = true;
    outbox_.Send(Encode(MessageKind::kJoin, Joined{node_.rank(), sequence_numbers}));
  }
  // Handles JOIN_END. Returns false for an impossible message.
  bool OnResult(Joined result) {
    if (!joined_ || result.rank < 0 || result.rank >= node_.world().size()) return false;
    result_ = NegotiationEvent::OfRank(NegotiationEvent::kJoinEnd, result.rank);
    result_->sequence_numbers = std::move(result.sequence_numbers);
    return true;
  }
  // Ends the join, where the log says so. REQUIRES: HasResult
  void End(NegotiationEvents* events) {
    joined_ = false;
    events->push_back(std::move(*result_));
    result_.reset();
  }

 private:
  const NodeMembers& node_;
  Outbox& outbox_;
  bool joined_ = false;
  std::optional<NegotiationEvent> result_;
};

}  // namespace farandole
