// Waiting for a descriptor, for the files that implement socket.h. Blocks the calling thread; no other rule.
#pragma once

#include "transport/socket.h"

namespace farandole {

// True once poll reports any of `events` (or an error, which the next call on the descriptor will name); false at the
// deadline and when waits are cancelled.
bool WaitFor(int fd, short events, Deadline deadline);

// Whether CancelWaits is in force.
bool WaitsAreCancelled();

}  // namespace farandole
