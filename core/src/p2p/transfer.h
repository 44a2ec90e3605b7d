// One message that this rank sends or receives: a transfer.
//
// The submitting thread fills it in. Until it is done, the Messenger owns the rest, under its lock; afterwards it does
// not change, and any thread may read it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/types.h"

namespace farandole {

inline constexpr int kAnySource = -1;

// What sender and receiver must agree on for a message to be matched, besides the ranks.
struct MessageKey {
  int32_t context = 0;  // the id of a process set
  uint64_t tag = 0;

  bool operator<(const MessageKey& other) const {
    return std::pair(context, tag) < std::pair(other.context, other.tag);
  }
};

struct Transfer {
  // ---- by the submitting thread
  bool sends = false;
  int peer = 0;  // a rank of the world; a receive may take kAnySource
  MessageKey key;
  DType dtype = DType::kUint8;
  std::byte* data = nullptr;  // read or written until done
  size_t size_bytes = 0;
  std::shared_ptr<const std::vector<int>> members;  // of the process set; null: all ranks

  // ---- by the Messenger
  int source = kAnySource;  // of a receive that is done: who sent the message
  uint32_t serial = 0;      // of a send, on its link
  Status status;
  std::atomic<bool> done{false};  // the last to be set

  // "recv from rank 1 with tag 3 in process set 2"
  std::string Title() const;
};

using TransferPtr = std::shared_ptr<Transfer>;

}  // namespace farandole
