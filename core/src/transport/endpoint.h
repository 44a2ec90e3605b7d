// Endpoint text to socket addresses and back, for the files that implement socket.h.
//
// Pure but for the resolver; any thread may call them.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "common/status.h"

namespace farandole {

struct Address {
  sockaddr_storage storage = {};
  socklen_t size_bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// In the order to try. kInvalid: the text is wrong; kPeerLost: the host is not known, or not yet.
Status ResolveEndpoint(const std::string& endpoint, std::vector<Address>* addresses);

// Empty for an unnamed Unix socket.
std::string EndpointOf(const Address& address);

}  // namespace farandole
