// Which ranks of other nodes have arrived at a sum that begins at submission ("early"). Its first message announces it,
// so the coordinator hears nothing of it. The leader of each node, its first member in the operation's process set,
// sends the node's data to all other leaders. A node of one rank is led by that rank.
//
// No rank begins use k + 1 before it has got all data of use k, so at most two uses are under way at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "common/status.h"
#include "controller/group_memory.h"
#include "controller/messages.h"
#include "transport/transport.h"
#include "world/process_set.h"

namespace farandole {

struct Name;
class NameTable;

// Arrivals at the uses of one id that this rank had not arrived at. Thread rule: the lock of Operations.
class PeerArrivals {
 public:
  void Note(int from, const MessageTag& tag) { uses_[UsesIn(tag.operation) & 1][from] = tag.operation; }
  // Returns the leaders that have arrived at the use, with their stamps.
  std::map<int, uint64_t> ArrivedAt(const ProcessSet& set, uint64_t use) const;

 private:
  std::map<int, uint64_t> uses_[2];  // use k is at k mod 2: stamps by rank
};

// Owns the arrivals at ids that this rank does not know yet: early messages have connections of their own, so another
// rank's may be here before the coordinator's ASSIGN. Thread rule: the lock of Operations.
class UnknownArrivals {
 public:
  UnknownArrivals(const GroupMembers& group, const NameTable& names) : group_(group), names_(names) {}

  // The name has got an id.
  void Open(Name* name);
  // See Negotiation::OnArrival.
  Status OnArrival(int from, const MessageTag& tag, bool* wanted);

 private:
  Status OnUnknown(int from, const MessageTag& tag);
  std::shared_ptr<PeerArrivals> ArrivalsOf(uint32_t serial);

  const GroupMembers& group_;
  const NameTable& names_;
  uint32_t last_serial_ = 0;                                   // that this rank has heard of
  std::map<uint32_t, std::shared_ptr<PeerArrivals>> unknown_;  // by serial
};

}  // namespace farandole
