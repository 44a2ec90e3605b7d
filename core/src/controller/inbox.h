// Where the data lie that other ranks have put to an eager operation: an allreduce between ranks that share no memory,
// each of which sends everybody its data as soon as it comes, so that everybody folds as soon as all have come.
//
// A use k lies in buffer k mod 2. Nobody puts to use k + 1 before it has got everybody's data of use k, so at most two
// are under way at a time. A value; the driver alone uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "controller/signature.h"
#include "world/process_set.h"

namespace farandole {

class Inbox {
 public:
  static constexpr size_t kMostBytes = kEagerMostBytes;

  struct Slot {
    uint64_t sequence = 0;  // what the rank said when it came, see SequenceOf; 0: it has not come
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

 private:
  size_t payload_bytes_ = 0;
  std::vector<Slot> buffers_[2];
};

}  // namespace farandole
