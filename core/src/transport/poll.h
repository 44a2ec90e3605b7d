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
  // Makes the next Wait end no later than this time.
  void WakeAt(TimePoint time);
  // Sleeps until a descriptor is ready or the wake time has come. Returns false if waits are cancelled (socket_io.h).
  bool Wait();

  // Returns whether this very descriptor was ready. Another descriptor that had the same number during Wait does not
  // count.
  bool ready(const Descriptor& descriptor) const { return descriptor.valid() && ready_.count(descriptor.serial()) > 0; }

 private:
  std::vector<pollfd> entries_;
  std::vector<uint64_t> serials_;  // of entries_, in the same order
  TimePoint wake_ = TimePoint::max();
  std::unordered_set<uint64_t> ready_;  // serials
};

class Poller {
 public:
  Status Open();
  // Reports `tag` when the descriptor is readable or hung up. An edge-triggered descriptor is also reported when it is
  // writable, and each change is reported once.
  Status Watch(int descriptor, uint64_t tag, bool edge_triggered = false);
  void Forget(int descriptor);

  // Sleeps until a descriptor is ready, the time is up, or a signal arrives.
  void Sleep(int timeout_ms) const;
  // Sleeps in the same way, and appends the tags of the ready descriptors. With timeout_ms 0 it checks without
  // sleeping. Only the thread that reads the descriptors may call this, because an edge is reported once.
  void Wait(int timeout_ms, std::vector<uint64_t>* tags) const;

 private:
  Descriptor epoll_;
};

// Opens a pidfd of this process, to be passed to other processes.
Status OpenOwnPidfd(Descriptor* pidfd);

// Returns a pidfd of the process at the other end of a Unix socket. Invalid for other sockets or if the kernel refuses.
Descriptor PidfdOfPeer(int fd);

}  // namespace farandole
