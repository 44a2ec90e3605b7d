// One sleep for everything that a loop waits for: descriptors are added anew for each sleep. One thread.
#pragma once

#include <poll.h>

#include <unordered_set>
#include <vector>

#include "common/clock.h"

namespace farandole {

class PollSet {
 public:
  // For the next Wait. Invalid descriptors are ignored.
  void Add(int fd, short events);
  // The next Wait ends at this time or at an earlier one.
  void WakeAt(TimePoint time);
  // Sleeps until a descriptor has something to say or the time has come. False: waits are cancelled, see socket.h.
  bool Wait();

  bool ready(int fd) const { return ready_.count(fd) > 0; }

 private:
  std::vector<pollfd> entries_;
  TimePoint wake_ = TimePoint::max();
  std::unordered_set<int> ready_;
};

}  // namespace farandole
