// One sleep for everything that a loop waits for: descriptors are added anew for each sleep. One thread.
#pragma once

#include <poll.h>

#include <unordered_set>
#include <vector>

#include "common/clock.h"
#include "common/descriptor.h"

namespace farandole {

class PollSet {
 public:
  // For the next Wait. Invalid descriptors are ignored.
  void Add(const Descriptor& descriptor, short events);
  // The next Wait ends at this time or at an earlier one.
  void WakeAt(TimePoint time);
  // Sleeps until a descriptor has something to say or the time has come. False: waits are cancelled, see socket.h.
  bool Wait();

  // Of this very descriptor, not of one that had its number when Wait looked.
  bool ready(const Descriptor& descriptor) const { return descriptor.valid() && ready_.count(descriptor.serial()) > 0; }

 private:
  std::vector<pollfd> entries_;
  std::vector<uint64_t> serials_;  // of the entries
  TimePoint wake_ = TimePoint::max();
  std::unordered_set<uint64_t> ready_;  // serials
};

}  // namespace farandole
