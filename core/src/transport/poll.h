// The objects that a thread sleeps on.
//
//   PollSet   descriptors that are added anew for each sleep; the start of a job owns one. One thread
//   Poller    descriptors that are watched until they are forgotten; the progress loop owns one. One thread changes
//             them, any thread may wait
//   pidfds    become readable when a process of this machine has ended. They name the process itself, never a successor
//             with the same number, and a child that the process forked does not delay them. Any thread
#pragma once

#include <poll.h>

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "common/clock.h"
#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

class PollSet {
 public:
  // Adds a descriptor to the next Wait. Ignores an invalid one.
  void Add(const Descriptor& descriptor, short events);
  // The next Wait ends at this time or at an earlier one.
  void WakeAt(TimePoint time);
  // Sleeps until a descriptor is ready or the time has come. False: waits are cancelled, see socket_io.h.
  bool Wait();

  // Returns whether this very descriptor was ready. Another descriptor that had its number during Wait does not count.
  bool ready(const Descriptor& descriptor) const { return descriptor.valid() && ready_.count(descriptor.serial()) > 0; }

 private:
  std::vector<pollfd> entries_;
  std::vector<uint64_t> serials_;  // of the entries
  TimePoint wake_ = TimePoint::max();
  std::unordered_set<uint64_t> ready_;  // serials
};

class Poller {
 public:
  Status Open();
  // Reports `tag` when the descriptor is readable (or hung up). Edge-triggered descriptors also report writability, and
  // each change once.
  Status Watch(int descriptor, uint64_t tag, bool edge_triggered = false);
  void Forget(int descriptor);

  // Sleeps until a descriptor is ready, or the time is up, or a signal comes.
  void Sleep(int timeout_ms) const;
  // Likewise, and appends the tags of the descriptors that are ready. timeout_ms 0 looks without sleeping. Only the
  // thread that reads the descriptors may call this: an edge is reported once.
  void Wait(int timeout_ms, std::vector<uint64_t>* tags) const;

 private:
  Descriptor epoll_;
};

// Opens a pidfd of this process, to be passed to other processes.
Status OpenOwnPidfd(Descriptor* pidfd);

// The pidfd of the process at the other end of a Unix socket. Invalid for other sockets, and when the kernel refuses.
Descriptor PidfdOfPeer(int fd);

}  // namespace farandole
