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

// Owns whether this rank has joined, in which round, and which operations wait for it.
//
// joined() is true once this rank has joined, takes_part() once rank 0 has confirmed that. Only then does this rank
// help: earlier, its help could let another rank end its last operation and have its JOIN heard first. Thread rule: the
// lock of Operations, except where a comment says otherwise.
class JoinState {
 public:
  JoinState(const GroupMembers& group, GroupMemory* memory, const NameTable& names, const UsesInFlight& in_flight,
            Outbox* outbox)
      : group_(group), memory_(*memory), names_(names), in_flight_(in_flight), outbox_(*outbox) {}

  bool joined() const { return joined_; }  // any thread
  bool takes_part() const { return takes_part_; }
  uint32_t round() const { return round_; }  // how many joins have ended
  bool HasResult() const { return result_.has_value(); }

  // REQUIRES: nothing in flight.
  void Join(const SequenceNumbers& sequence_numbers);
  // Handle messages of rank 0. They return false for an impossible message.
  bool OnJoined();
  bool OnOpen(int id, uint64_t said);
  bool OnResult(Joined result);
  // Ends the join, where the log says so. REQUIRES: HasResult, and nothing in flight.
  void End(NegotiationEvents* events);
  // Drops an id that is retired.
  void Forget(int id);

  // Invites this rank to operations that only others have begun. head: how far this rank has read the log.
  void Invite(uint64_t head, NegotiationEvents* events);
  // Returns the other ranks that have arrived at the name's next use, with their stamps, as far as this rank can see.
  std::map<int, uint64_t> OthersAt(const Name& name) const;

 private:
  static NegotiationEvent InvitationTo(const Name& name, uint64_t said);

  const GroupMembers& group_;
  GroupMemory& memory_;
  const NameTable& names_;
  const UsesInFlight& in_flight_;
  Outbox& outbox_;
  std::atomic<bool> joined_{false};
  bool takes_part_ = false;
  uint32_t round_ = 0;
  std::map<int, uint64_t> opened_;  // id -> stamp of the use that waits for joined ranks alone
  std::set<int> refused_;           // ids of broadcasts whose root this rank is
  std::optional<NegotiationEvent> result_;
};

}  // namespace farandole
