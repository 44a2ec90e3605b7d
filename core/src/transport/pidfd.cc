#include "transport/pidfd.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace farandole {
namespace {

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

Descriptor Open(pid_t pid) { return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace

Status OpenOwnPidfd(Descriptor* pidfd) {
  *pidfd = Open(getpid());
  return pidfd->valid() ? Status::Ok() : SystemError("pidfd_open (Linux 5.3 or newer is needed to share memory)");
}

Descriptor PidfdOfPeer(int fd) {
  ucred peer = {};
  socklen_t size_bytes = sizeof(peer);
  const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size_bytes) == 0 && peer.pid > 0;
  return known ? Open(peer.pid) : Descriptor();
}

}  // namespace farandole
