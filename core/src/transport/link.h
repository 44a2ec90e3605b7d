// A reliable, ordered stream of bytes between two ranks.
//
// Both ends know from the schedule how many bytes come next, so a link needs no frames.
//
// The World owns its links. A link belongs to one epoch, and the next epoch makes links of its own. One thread at a
// time uses a link: the one that drives the progress loop.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/descriptor.h"
#include "common/status.h"

namespace farandole {

class Link {
 public:
  virtual ~Link() = default;

  // Move up to size_bytes without blocking. *moved_bytes is 0 when nothing can be moved now. An error is final;
  // kPeerLost: the peer closed or reset the connection. REQUIRES: size_bytes > 0.
  virtual Status TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) = 0;
  virtual Status TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) = 0;

  // A descriptor that becomes readable or writable when a try may succeed; -1 where the link must be polled.
  virtual int descriptor() const = 0;
};

// A link over a connected stream socket, blocking or not: TCP between hosts, and a Unix socket pair works too. `peer`
// names the other end in errors ("rank 3 on node-b").
//
// REQUIRES: the socket is authenticated (handshake.h), and its buffer sizes were set before connect or listen. The link
// switches Nagle's delay off. After the link's destruction the peer still receives what was sent, then kPeerLost. If
// this end has unread bytes, the peer may lose what was sent.
std::unique_ptr<Link> MakeTcpLink(Descriptor socket, std::string peer = "a peer");

}  // namespace farandole
