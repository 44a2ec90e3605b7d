// Handshakes as blocking calls, for tests that run both ends in two threads.
#pragma once

#include <algorithm>

#include "transport/handshake.h"
#include "transport/socket_io.h"

namespace farandole {

inline Status RunHandshake(Handshake::Side side, int fd, const Key& key, const Hello& mine, Hello* theirs,
                           Deadline deadline) {
  Handshake handshake(side, key, mine, Now());
  for (;;) {
    FRD_RETURN_IF_ERROR(handshake.Step(fd, Now()));
    if (handshake.done()) break;
    const Deadline limit = std::min(deadline, handshake.limit());
    if (!WaitFor(fd, handshake.events(), limit) && limit == deadline) return {Code::kDeadline, "the caller's deadline"};
  }
  *theirs = handshake.theirs();
  return Status::Ok();
}

inline Status HandshakeClient(int fd, const Key& key, const Hello& mine, Hello* theirs, Deadline deadline) {
  return RunHandshake(Handshake::Side::kClient, fd, key, mine, theirs, deadline);
}

inline Status HandshakeServer(int fd, const Key& key, const Hello& mine, Hello* theirs, Deadline deadline) {
  return RunHandshake(Handshake::Side::kServer, fd, key, mine, theirs, deadline);
}

}  // namespace farandole
