// Ranks without data, which take part in the operations of the others until all have joined.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "controller/admission.h"
#include "controller/group_memory.h"
#include "controller/messages.h"
#include "controller/name_table.h"

namespace farandole {

// Owns whether this rank has joined, in which round, and to what it is still invited.
//
// A rank has joined (joined) before rank 0 has heard of it (takes_part). Only from then on it helps: before, its help
// could let another rank end its last operation and be heard first. Thread rule: the lock of Operations, but for what
// says otherwise.
class JoinState {
 public:
  JoinState(const GroupMembers& group, GroupMemory* memory, const NameTable& names, const UsesInFlight& in_flight,
            Outbox* outbox)
      : group_(group), memory_(*memory), names_(names), in_flight_(in_flight), outbox_(*outbox) {}

  bool joined() const { return joined_; }  // any thread
  bool takes_part() const { return takes_part_; }
  uint32_t round() const { return round_; }  // how often all had joined
  bool HasResult() const { return result_.has_value(); }

  // REQUIRES: nothing in flight.
  void Join(const SequenceNumbers& sequence_numbers);
  // What rank 0 says. False when it cannot have meant that.
  bool OnJoined();
  bool OnOpen(int id, uint64_t said);
  bool OnResult(JoinResult result);
  // The log says that all had joined. REQUIRES: HasResult, and nothing in flight.
  void End(NegotiationEvents* events);
  // The id means nothing any more.
  void Forget(int id);

  // Operations that others have begun and this rank has not. head: how far this rank has read the log.
  void Invite(uint64_t head, NegotiationEvents* events);

 private:
  std::optional<uint64_t> WhatOthersSaid(const Name& name) const;
  static NegotiationEvent InvitationTo(const Name& name, uint64_t said);

  const GroupMembers& group_;
  GroupMemory& memory_;
  const NameTable& names_;
  const UsesInFlight& in_flight_;
  Outbox& outbox_;
  std::atomic<bool> joined_{false};
  bool takes_part_ = false;
  uint32_t round_ = 0;
  std::map<int, uint64_t> opened_;  // id -> what the others said of the use for which only joined ranks are missing
  std::set<int> refused_;           // ids of broadcasts whose root this rank is
  std::optional<NegotiationEvent> result_;
};

}  // namespace farandole
