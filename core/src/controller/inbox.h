// An inbox holds the data that other ranks have put to an eager operation: an allreduce between several groups. The
// leader of each group sends the group's data to all other leaders as soon as it has them, and folds as soon as all
// data are there. A group of one is led by its rank. The leader of a group is its first member in the operation's set.
//
// Use k lies in buffer k mod 2. No rank puts to use k + 1 before it has got all data of use k, so at most two uses are
// under way at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/status.h"
#include "controller/group_memory.h"
#include "controller/messages.h"
#include "world/process_set.h"

namespace farandole {

struct Name;
class NameTable;

// The inbox of one id. Thread rule: slots change under the lock of Operations; the data in them belong to the holder of
// the ProgressLock.
class Inbox {
 public:
  static constexpr size_t kMostBytes = kEagerMostBytes;

  struct Slot {
    uint64_t stamp = 0;     // of the rank's arrival, see StampOf; 0: it has not arrived
    uint32_t round = 0;     // how many joins the rank had seen end
    bool has_data = false;  // its data have begun to arrive
    size_t received_bytes = 0;
    std::unique_ptr<std::byte[]> data;
  };

  explicit Inbox(int world_size)
      : buffers_{std::vector<Slot>(static_cast<size_t>(world_size)),
                 std::vector<Slot>(static_cast<size_t>(world_size))} {}

  // Sets how many bytes each rank puts. Returns false when that is too much, or differs from an earlier call.
  bool Expect(size_t payload_bytes) {
    if (payload_bytes_ == 0) payload_bytes_ = payload_bytes;
    return payload_bytes == payload_bytes_ && payload_bytes <= kMostBytes;
  }
  size_t payload_bytes() const { return payload_bytes_; }
  // `use` counts from 1, as UsesIn does; `rank` is one of the world.
  Slot& at(uint64_t use, int rank) { return buffers_[use & 1][static_cast<size_t>(rank)]; }
  bool IsComplete(const Slot& slot) const { return slot.has_data && slot.received_bytes == payload_bytes_; }

  // Returns the leaders of other groups of the set whose data for this use are missing.
  std::vector<int> Missing(const ProcessSet& set, uint64_t use);
  // Returns the stamp of some leader that has arrived at the use in this round of joining.
  std::optional<uint64_t> Said(const ProcessSet& set, uint64_t use, uint32_t round);

 private:
  size_t payload_bytes_ = 0;
  std::vector<Slot> buffers_[2];
};

// Owns the inboxes of ids that this rank does not know yet. PUTs have connections of their own, so another rank's PUT
// may be here before the coordinator's ASSIGN. Thread rule: the lock of Operations.
class Inboxes {
 public:
  Inboxes(const GroupMembers& group, const NameTable& names) : group_(group), names_(names) {}

  // Opens the inbox of a name that has got an id with this serial number. Returns false when the sizes do not fit.
  bool Open(Name* name, uint32_t serial);
  // See Negotiation::OnPut.
  Status OnPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox);

 private:
  Status OnEarlyPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox);

  const GroupMembers& group_;
  const NameTable& names_;
  uint32_t last_serial_ = 0;                          // that this rank has heard of
  std::map<uint32_t, std::shared_ptr<Inbox>> early_;  // by serial
};

}  // namespace farandole
