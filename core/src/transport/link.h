// A reliable, ordered stream of bytes between two ranks.
//
// Algorithms see only this: both ends know from the schedule how many bytes come next, so there are no frames here.
// A link belongs to one epoch and is never reused in the next. One thread (the driver) uses a link at a time.
#pragma once

#include <cstddef>

#include "common/status.h"

namespace farandole {

class Link {
 public:
  virtual ~Link() = default;

  // Move up to size_bytes without blocking. *moved_bytes is 0 when nothing can be moved now. An error (the peer closed,
  // reset) is kPeerLost and final. REQUIRES: size_bytes > 0.
  virtual Status TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) = 0;
  virtual Status TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) = 0;

  // A descriptor that becomes readable or writable when a try may succeed; -1 where the link must be polled.
  virtual int descriptor() const = 0;
};

}  // namespace farandole
