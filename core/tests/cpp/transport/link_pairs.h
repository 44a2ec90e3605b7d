// Linked pairs of every transport, for the suites that must hold on all of them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/loopback.h"
#include "transport/link.h"

namespace farandole::tests {

struct LinkPair {
  std::unique_ptr<Link> first;   // its peer is called "rank 1"
  std::unique_ptr<Link> second;  // its peer is called "rank 0"
};

inline void Require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

inline LinkPair LoopbackLinks() {
  const auto forward = std::make_shared<LoopbackQueue>(1), backward = std::make_shared<LoopbackQueue>(2);
  return {std::make_unique<LoopbackLink>(forward, backward, "rank 1"),
          std::make_unique<LoopbackLink>(backward, forward, "rank 0")};
}

inline LinkPair SocketPairLinks() {
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  return {MakeTcpLink(Descriptor(ends[0]), "rank 1"), MakeTcpLink(Descriptor(ends[1]), "rank 0")};
}

inline int BufferedSocket(int buffer_bytes) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Require(descriptor >= 0, "socket");
  if (buffer_bytes > 0) {
    setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
  }
  return descriptor;
}

// buffer_bytes 0 leaves the buffers to the kernel.
inline LinkPair TcpLinks(int buffer_bytes = 0) {
  const int listener = BufferedSocket(buffer_bytes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener, raw, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, raw, &size) == 0,
          "listen");
  const int connected = BufferedSocket(buffer_bytes);
  Require(connect(connected, raw, size) == 0, "connect");
  const int accepted = accept(listener, nullptr, nullptr);
  Require(accepted >= 0, "accept");
  close(listener);
  return {MakeTcpLink(Descriptor(connected), "rank 1"), MakeTcpLink(Descriptor(accepted), "rank 0")};
}

struct Transport {
  const char* name;
  LinkPair (*make)();
};
inline void PrintTo(const Transport& transport, std::ostream* out) { *out << transport.name; }

inline const Transport kTransports[] = {
    {"loopback", LoopbackLinks},
    {"socketpair", SocketPairLinks},
    {"tcp", [] { return TcpLinks(); }},
};

// Bounds loops that wait for a peer, so that a test fails instead of hanging.
class TimeLimit {
 public:
  explicit TimeLimit(std::chrono::seconds limit) : end_(std::chrono::steady_clock::now() + limit) {}
  bool passed() const { return std::chrono::steady_clock::now() > end_; }

 private:
  const std::chrono::steady_clock::time_point end_;
};

}  // namespace farandole::tests
