// A Link over a connected stream socket (TCP between hosts; a Unix socket pair works too).
//
// The socket comes authenticated (handshake) and with its buffer sizes set: they count only before connect and listen.
// Thread rule: that of Link.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/descriptor.h"
#include "transport/link.h"

namespace farandole {

class TcpLink final : public Link {
 public:
  // Switches off Nagle's delay. `peer` names the other end in errors ("rank 3 on node-b").
  // REQUIRES: a connected stream socket, blocking or not.
  explicit TcpLink(Descriptor descriptor, std::string peer = "a peer");
  ~TcpLink() override;  // the peer still receives what was sent (unless it left us unread bytes), then kPeerLost
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  Status TrySend(const void* data, size_t size_bytes, size_t* moved_bytes) override;
  Status TryRecv(void* data, size_t size_bytes, size_t* moved_bytes) override;
  int descriptor() const override { return descriptor_.get(); }

 private:
  Status Failure(const char* action, int error) const;

  const Descriptor descriptor_;
  const pid_t owner_;
  const std::string peer_;
};

}  // namespace farandole
