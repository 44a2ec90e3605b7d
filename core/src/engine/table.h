// What submitting threads and the driver share: the agreement, the operations in flight, and the reason why there are
// no more.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "controller/agreement.h"
#include "engine/operation.h"

namespace farandole {

struct Table {
  Table(const Layout& layout, int rank, std::byte* board) : agreement(layout, rank, board) {}

  std::mutex mutex;  // guards everything below but the atomics
  Agreement agreement;
  std::unordered_map<Ticket, std::shared_ptr<Operation>> operations;  // submitted, not yet taken by the driver
  Ticket next_ticket = 1;
  Status broken;

  std::atomic<bool> is_broken{false};     // `broken` is set and will not change
  std::atomic<bool> has_outgoing{false};  // a submitter left a message for the coordinator
  std::atomic<int> in_flight{0};          // operations not completed

  std::atomic<uint64_t> bytes_submitted{0};
  std::atomic<uint64_t> messages_sent{0};
};

}  // namespace farandole
