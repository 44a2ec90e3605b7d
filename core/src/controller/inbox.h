// An inbox holds the data that other ranks have put to an eager operation: an allreduce between ranks that share no
// memory. Each rank sends its data to all others as soon as it comes, and folds as soon as all data are there.
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
#include "controller/signature.h"
#include "world/process_set.h"

namespace farandole {

struct Name;
class NameTable;

// Of one id. Thread rule: what the slots say is changed under the lock of Operations; the data in them are the holder's
// of the ProgressLock.
class Inbox {
 public:
  static constexpr size_t kMostBytes = kEagerMostBytes;

  struct Slot {
    uint64_t stamp = 0;     // what the rank said when it came, see StampOf; 0: it has not come
    uint32_t round = 0;     // how often it had seen all ranks join
    bool has_data = false;  // its data have begun to come
    size_t received_bytes = 0;
    std::unique_ptr<std::byte[]> data;
  };

  explicit Inbox(int world_size)
      : buffers_{std::vector<Slot>(static_cast<size_t>(world_size)),
                 std::vector<Slot>(static_cast<size_t>(world_size))} {}

  // How much everybody puts. False when that cannot be, or was said otherwise before.
  bool Expect(size_t payload_bytes) {
    if (payload_bytes_ == 0) payload_bytes_ = payload_bytes;
    return payload_bytes == payload_bytes_ && payload_bytes <= kMostBytes;
  }
  size_t payload_bytes() const { return payload_bytes_; }
  // `use` counts from 1, as UsesIn does; `rank` is one of the world.
  Slot& at(uint64_t use, int rank) { return buffers_[use & 1][static_cast<size_t>(rank)]; }
  bool IsComplete(const Slot& slot) const { return slot.has_data && slot.received_bytes == payload_bytes_; }

  // Ranks of the set, but for this one, whose data of the use are not here.
  std::vector<int> Missing(const ProcessSet& set, int me, uint64_t use);
  // What some rank said that has come to the use, in this round of joining.
  std::optional<uint64_t> Said(const ProcessSet& set, uint64_t use, uint32_t round);

 private:
  size_t payload_bytes_ = 0;
  std::vector<Slot> buffers_[2];
};

// Owns the inboxes of ids of which this rank has still to hear. PUTs come on connections of their own, so other ranks
// may have heard of an id before, and use it already. Thread rule: the lock of Operations.
class Inboxes {
 public:
  Inboxes(const GroupMembers& group, const NameTable& names) : group_(group), names_(names) {}

  // The name has been assigned an id with this serial number. False when that cannot be.
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
