// A sleep that ends when any of its descriptors has something to say. One thread changes the set; any thread may wait.
#pragma once

#include <cstdint>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

class Poller {
 public:
  Status Open();
  // Reports `tag` when the descriptor is readable (or hung up). Edge-triggered descriptors also report writability,
  // each change once.
  Status Watch(int descriptor, uint64_t tag, bool edge_triggered = false);
  // Reports writability, too, as long as it lasts.
  void WatchWriting(int descriptor, uint64_t tag, bool on);
  void Forget(int descriptor);

  // Appends the tags that have something to say. timeout_ms 0 looks without sleeping. A signal ends the sleep early.
  void Wait(int timeout_ms, std::vector<uint64_t>* tags) const;

 private:
  Descriptor epoll_;
};

}  // namespace farandole
