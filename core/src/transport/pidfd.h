// A descriptor that becomes readable when a process of this machine has ended. It names the process itself, never a
// successor with the same number, and nothing that the process forked keeps it quiet. Any thread.
#pragma once

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

Status OpenOwnPidfd(Descriptor* pidfd);

// Of the process at the other end of a Unix socket; invalid when that is no Unix socket or the kernel does not say.
Descriptor PidfdOfPeer(int fd);

}  // namespace farandole
