#include "transport/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/text.h"
#include "transport/socket_io.h"

namespace farandole {
namespace {

constexpr int kBufferBytes = 4 << 20;
constexpr int kBacklog = 4096;
constexpr int64_t kMaxProbes = 127;  // of a connection, which the kernel allows

std::atomic<int64_t> g_silence_timeout_ms{4000};

// ---- endpoint text to socket addresses and back

struct Address {
  sockaddr_storage storage = {};
  socklen_t size_bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

const char kUnixPrefix[] = "unix:";
const char kTcpPrefix[] = "tcp:";

Status BadEndpoint(const std::string& endpoint, const std::string& why) {
  return Invalid("'", endpoint, "' is not an endpoint: ", why,
                 " (write unix:<name>, tcp:<host>:<port> or tcp:[<IPv6 address>]:<port>)");
}

Status UnixAddress(const std::string& endpoint, std::vector<Address>* addresses) {
  const std::string name = endpoint.substr(std::strlen(kUnixPrefix));
  sockaddr_un path = {};
  if (name.empty()) return BadEndpoint(endpoint, "the name is empty");
  if (name.size() > sizeof(path.sun_path) - 1) return BadEndpoint(endpoint, "the name is longer than 107 bytes");
  path.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract: it has no file, and ends with its last socket.
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
  if (error != 0) return {Code::kPeerLost, endpoint, ": the host is not known (", gai_strerror(error), ")"};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.size_bytes = each->ai_addrlen;
    addresses->push_back(address);
  }
  return Status::Ok();
}

// The addresses of an endpoint in the order to try. kInvalid: the text is wrong; kPeerLost: the host is not known, or
// not yet.
Status ResolveEndpoint(const std::string& endpoint, std::vector<Address>* addresses) {
  if (StartsWith(endpoint, kUnixPrefix)) return UnixAddress(endpoint, addresses);
  if (StartsWith(endpoint, kTcpPrefix)) return TcpAddresses(endpoint, addresses);
  return BadEndpoint(endpoint, "it starts with neither unix: nor tcp:");
}

// Empty for an unnamed Unix socket.
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

// getsockname or getpeername, as a value.
using NameFunction = int (*)(int, sockaddr*, socklen_t*);

bool AddressOf(NameFunction getname, int fd, Address* address) {
  address->size_bytes = sizeof(address->storage);
  return getname(fd, address->get(), &address->size_bytes) == 0;
}

// ---- options

void SetOption(int fd, int level, int name, int value) {
  // These options are tuning. Where a kernel or a sandbox refuses one, transfers are slower or a death is noticed
  // later.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

// A request within the kernel's limit is granted in full. A larger request yields the limit *and* ends the kernel's own
// growing of TCP buffers, which is worse than no request.
bool KernelAllowsTcpBuffers() {
  static const bool allowed = [] {
    const auto limit = [](const char* path) { return std::atoll(ContentsOf(path).c_str()); };
    return limit("/proc/sys/net/core/rmem_max") >= kBufferBytes && limit("/proc/sys/net/core/wmem_max") >= kBufferBytes;
  }();
  return allowed;
}

// REQUIRES: called before listen or connect, because TCP agrees on its window scale then.
void SizeBuffers(int fd, int family) {
  if (family != AF_UNIX && !KernelAllowsTcpBuffers()) return;
  SetOption(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  SetOption(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
}

void TuneTcp(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // An idle connection notices the silent death of the other host: nobody answers its probes, one each second unless
  // that makes too many. The first one follows a pause of the same length.
  const int64_t seconds = (g_silence_timeout_ms + 999) / 1000;
  const int64_t pause = (seconds + kMaxProbes) / (kMaxProbes + 1);
  const int64_t probes = std::max<int64_t>(1, (seconds + pause - 1) / pause - 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(pause));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(pause));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(probes));
}

// Returns an invalid descriptor and sets errno where the system refuses.
Descriptor MakeSocket(int family) {
  Descriptor made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) return made;
  SizeBuffers(made.get(), family);
  if (family != AF_UNIX) TuneTcp(made.get());
  return made;
}

// Refuses a peer of another user: any user of the machine may connect to an abstract name, or bind it before us.
Status CheckUser(int fd, const std::string& who) {
  ucred peer = {};
  socklen_t size_bytes = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size_bytes) != 0) return SystemError(who + ": SO_PEERCRED");
  if (peer.uid == geteuid()) return Status::Ok();
  return {Code::kMismatch, who, " belongs to user id ", peer.uid, ", this process to user id ", geteuid(), ": refused"};
}

// ---- connecting

// TCP's simultaneous open may connect a socket to itself when nobody listens on a port of our own host.
bool IsConnectedToItself(int fd) {
  Address mine, theirs;
  if (!AddressOf(getsockname, fd, &mine) || !AddressOf(getpeername, fd, &theirs)) return false;
  return mine.family() != AF_UNIX && mine.size_bytes == theirs.size_bytes &&
         std::memcmp(&mine.storage, &theirs.storage, mine.size_bytes) == 0;
}

Status ConnectError(const std::string& endpoint, int error) {
  const std::string at = AtEndpoint(endpoint);
  const std::string text = "no connection" + at + (at.empty() ? " on this machine: " : ": ") + std::strerror(error);
  // EAGAIN: the listener's queue is full. EAFNOSUPPORT: a name may have an IPv6 address on a host without IPv6.
  // EADDRNOTAVAIL: the same, or no local port is free now.
  constexpr int kPassing[] = {ECONNREFUSED, ECONNRESET, ECONNABORTED, ETIMEDOUT,    EHOSTUNREACH, EHOSTDOWN,
                              ENETUNREACH,  ENETDOWN,   EAGAIN,       EAFNOSUPPORT, EADDRNOTAVAIL};
  const bool passes = std::find(std::begin(kPassing), std::end(kPassing), error) != std::end(kPassing);
  return passes ? Status(Code::kPeerLost, text) : Internal("cannot connect to ", text);
}

Status ListenAt(const std::string& endpoint, const Address& address, Descriptor* listener) {
  Descriptor made = MakeSocket(address.family());
  if (!made.valid()) return SystemError("cannot open a socket for " + endpoint);
  // A restarted job may bind its port while connections of the last job are in TIME_WAIT.
  if (address.family() != AF_UNIX) SetOption(made.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(made.get(), address.get(), address.size_bytes) != 0 || listen(made.get(), kBacklog) != 0) {
    return SystemError("cannot listen at " + endpoint);
  }
  *listener = std::move(made);
  return Status::Ok();
}

// ---- addresses of interfaces

struct AddressBytes {
  const uint8_t* data = nullptr;  // null: an address by which other hosts cannot connect
  size_t count = 0;
};

AddressBytes BytesOf(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const uint8_t*>(&v4->sin_addr), sizeof(v4->sin_addr)};
  }
  if (address->sa_family != AF_INET6) return {};
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
  if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return {};
  return {reinterpret_cast<const uint8_t*>(&v6->sin6_addr), sizeof(v6->sin6_addr)};
}

// The prefix length of a network, from its mask.
size_t Ones(const AddressBytes& mask) {
  size_t ones = 0;
  for (size_t i = 0; i < mask.count; ++i) ones += std::bitset<8>(mask.data[i]).count();
  return ones;
}

}  // namespace

Status Listen(const std::string& endpoint, Descriptor* listener) {
  std::vector<Address> addresses;
  const Status resolved = ResolveEndpoint(endpoint, &addresses);
  if (resolved.code() == Code::kPeerLost) return Internal("cannot listen at ", resolved.message());
  FRD_RETURN_IF_ERROR(resolved);
  Status last;
  for (const Address& address : addresses) {
    last = ListenAt(endpoint, address, listener);
    if (last.ok()) break;
  }
  return last;
}

std::string AtEndpoint(const std::string& endpoint) {
  return StartsWith(endpoint, kTcpPrefix) ? " at " + endpoint.substr(std::strlen(kTcpPrefix)) : "";
}

Status BoundEndpoint(int fd, std::string* endpoint) {
  Address address;
  if (!AddressOf(getsockname, fd, &address)) return SystemError("getsockname");
  *endpoint = EndpointOf(address);
  return endpoint->empty() ? Internal("the socket is bound to nothing") : Status::Ok();
}

Status Accept(int listener_fd, Deadline deadline, Descriptor* connection) {
  for (;;) {
    if (!WaitFor(listener_fd, POLLIN, deadline)) return {Code::kDeadline, "nobody connected in time"};
    Descriptor made(accept4(listener_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!made.valid()) {
      // accept also reports errors of the one connection that it would have returned. Only these errors concern the
      // listener itself.
      const bool is_ours = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ||
                           errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EFAULT || errno == EPERM;
      if (is_ours) return SystemError("cannot accept a connection");
      continue;
    }
    Address mine;
    if (!AddressOf(getsockname, made.get(), &mine)) return SystemError("getsockname");
    if (mine.family() == AF_UNIX) {
      FRD_RETURN_IF_ERROR(CheckUser(made.get(), DescribePeer(made.get())));
    } else {
      TuneTcp(made.get());
    }
    *connection = std::move(made);
    return Status::Ok();
  }
}

void SetSilenceTimeout(int64_t milliseconds) { g_silence_timeout_ms = milliseconds; }

void FailWhenUnanswered(int fd) {
  Address mine;
  if (AddressOf(getsockname, fd, &mine) && mine.family() != AF_UNIX) {
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(g_silence_timeout_ms));
  }
}

Status BeginConnect(const std::string& endpoint, size_t attempt, Descriptor* connection) {
  std::vector<Address> addresses;
  FRD_RETURN_IF_ERROR(ResolveEndpoint(endpoint, &addresses));
  if (addresses.empty()) return Internal(endpoint, ": no address");
  const Address& address = addresses[attempt % addresses.size()];
  Descriptor made = MakeSocket(address.family());
  if (!made.valid()) return ConnectError(endpoint, errno);
  const int error = connect(made.get(), address.get(), address.size_bytes) == 0 ? 0 : errno;
  if (error != 0 && error != EINPROGRESS && error != EINTR) return ConnectError(endpoint, error);
  *connection = std::move(made);
  return Status::Ok();
}

Status EndConnect(const std::string& endpoint, int fd) {
  int error = 0;
  socklen_t size_bytes = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size_bytes) != 0) return SystemError(endpoint);
  if (error == 0 && IsConnectedToItself(fd)) error = ECONNREFUSED;
  if (error != 0) return ConnectError(endpoint, error);
  Address mine;
  if (!AddressOf(getsockname, fd, &mine)) return SystemError("getsockname");
  return mine.family() == AF_UNIX ? CheckUser(fd, "the listener at " + endpoint) : Status::Ok();
}

std::string DescribePeer(int fd) {
  Address address;
  if (!AddressOf(getpeername, fd, &address)) return "a peer that is gone";
  const std::string name = EndpointOf(address);
  if (!name.empty()) return name;
  ucred peer = {};
  socklen_t size_bytes = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size_bytes) != 0) return "an unnamed peer";
  return "process " + std::to_string(peer.pid) + " on this machine";
}

Status HostAddresses(std::vector<std::string>* addresses) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return SystemError("getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  addresses->clear();
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const bool reaches_others = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!reaches_others || each->ifa_addr == nullptr || each->ifa_netmask == nullptr) continue;
    const AddressBytes bytes = BytesOf(each->ifa_addr);
    char text[INET6_ADDRSTRLEN];
    if (bytes.data == nullptr) continue;
    if (inet_ntop(each->ifa_addr->sa_family, bytes.data, text, sizeof(text)) == nullptr) continue;
    addresses->push_back(std::string(text) + "/" + std::to_string(Ones(BytesOf(each->ifa_netmask))));
  }
  return Status::Ok();
}

}  // namespace farandole
