#include "transport/endpoint.h"

#include <netdb.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <memory>

namespace farandole {
namespace {

const char kUnixPrefix[] = "unix:";
const char kTcpPrefix[] = "tcp:";

bool StartsWith(const std::string& text, const char* prefix) {
  return text.compare(0, std::strlen(prefix), prefix) == 0;
}

Status BadEndpoint(const std::string& endpoint, const std::string& why) {
  return Invalid("'" + endpoint + "' is not an endpoint: " + why +
                 " (write unix:<name>, tcp:<host>:<port> or tcp:[<IPv6 address>]:<port>)");
}

Status UnixAddress(const std::string& endpoint, std::vector<Address>* addresses) {
  const std::string name = endpoint.substr(std::strlen(kUnixPrefix));
  sockaddr_un path = {};
  if (name.empty()) return BadEndpoint(endpoint, "the name is empty");
  if (name.size() > sizeof(path.sun_path) - 1) return BadEndpoint(endpoint, "the name is longer than 107 bytes");
  path.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract: no file, gone with its last socket.
  std::memcpy(path.sun_path + 1, name.data(), name.size());
  Address address;
  std::memcpy(&address.storage, &path, sizeof(path));
  address.size_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  addresses->push_back(address);
  return Status::Ok();
}

Status SplitTcp(const std::string& endpoint, std::string* host, std::string* port) {
  const std::string rest = endpoint.substr(std::strlen(kTcpPrefix));
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos) return BadEndpoint(endpoint, "the port is missing");
  *host = rest.substr(0, colon);
  *port = rest.substr(colon + 1);
  const bool is_bracketed = host->size() > 2 && host->front() == '[' && host->back() == ']';
  if (is_bracketed) {
    *host = host->substr(1, host->size() - 2);
  } else if (host->find_first_of(":[]") != std::string::npos) {
    return BadEndpoint(endpoint, "an IPv6 address stands in [brackets]");
  }
  if (host->empty()) return BadEndpoint(endpoint, "the host is missing");
  const bool is_number =
      !port->empty() && port->size() <= 5 && port->find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || std::stoi(*port) > 65535) return BadEndpoint(endpoint, "the port is no number up to 65535");
  return Status::Ok();
}

// kPeerLost when the name is not known: names of hosts that are just starting appear late.
Status TcpAddresses(const std::string& endpoint, std::vector<Address>* addresses) {
  std::string host, port;
  FRD_RETURN_IF_ERROR(SplitTcp(endpoint, &host, &port));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return {Code::kPeerLost, endpoint + ": the host is not known (" + gai_strerror(error) + ")"};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.size_bytes = each->ai_addrlen;
    addresses->push_back(address);
  }
  return Status::Ok();
}

}  // namespace

Status ResolveEndpoint(const std::string& endpoint, std::vector<Address>* addresses) {
  if (StartsWith(endpoint, kUnixPrefix)) return UnixAddress(endpoint, addresses);
  if (StartsWith(endpoint, kTcpPrefix)) return TcpAddresses(endpoint, addresses);
  return BadEndpoint(endpoint, "it starts with neither unix: nor tcp:");
}

std::string EndpointOf(const Address& address) {
  if (address.family() == AF_UNIX) {
    constexpr size_t kNameAt = offsetof(sockaddr_un, sun_path) + 1;
    if (address.size_bytes <= kNameAt) return "";
    return kUnixPrefix +
           std::string(reinterpret_cast<const char*>(&address.storage) + kNameAt, address.size_bytes - kNameAt);
  }
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const int error = getnameinfo(address.get(), address.size_bytes, host, sizeof(host), port, sizeof(port),
                                NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return "";
  const bool is_ipv6 = address.family() == AF_INET6;
  return std::string(kTcpPrefix) + (is_ipv6 ? "[" : "") + host + (is_ipv6 ? "]:" : ":") + port;
}

}  // namespace farandole
