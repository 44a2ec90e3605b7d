// Transports between the participants of a test, of every kind there is.
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
#include <vector>

#include "support/loopback.h"

namespace farandole::tests {

using Transports = std::vector<std::unique_ptr<Transport>>;  // by participant; a peer is called "rank 3" there

inline MessageTag OnChannel(uint32_t channel) {
  MessageTag tag;
  tag.channel = channel;
  return tag;
}

inline void Require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

inline Transports LoopbackTransports(int participants, uint32_t seed = 1) {
  const auto net = std::make_shared<LoopbackNet>(participants, seed);
  Transports transports;
  for (int me = 0; me < participants; ++me) transports.push_back(std::make_unique<Loopback>(net, me));
  return transports;
}

inline std::pair<Descriptor, Descriptor> UnixPair() {
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

inline std::pair<Descriptor, Descriptor> TcpPair() {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  Require(bind(listener.get(), raw, size) == 0 && listen(listener.get(), 1) == 0 &&
              getsockname(listener.get(), raw, &size) == 0,
          "listen");
  Descriptor connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Require(connect(connected.get(), raw, size) == 0, "connect");
  Descriptor accepted(accept(listener.get(), nullptr, nullptr));
  Require(accepted.valid(), "accept");
  return {std::move(connected), std::move(accepted)};
}

template <typename MakePair>
Transports SocketTransports(int participants, MakePair make) {
  std::vector<std::vector<PeerConnection>> connections(static_cast<size_t>(participants));
  for (int i = 0; i < participants; ++i) {
    for (int j = i + 1; j < participants; ++j) {
      auto [first, second] = make();
      connections[static_cast<size_t>(i)].push_back({j, Lane::kOrdered, std::move(first), "rank " + std::to_string(j)});
      connections[static_cast<size_t>(j)].push_back(
          {i, Lane::kOrdered, std::move(second), "rank " + std::to_string(i)});
    }
  }
  Transports transports;
  for (auto& each : connections) transports.push_back(MakeTransport(std::move(each)));
  return transports;
}
inline Transports UnixTransports(int participants) { return SocketTransports(participants, UnixPair); }
inline Transports TcpTransports(int participants) { return SocketTransports(participants, TcpPair); }

struct TransportKind {
  const char* name;
  Transports (*make)(int participants);
};
inline void PrintTo(const TransportKind& kind, std::ostream* out) { *out << kind.name; }

inline const TransportKind kTransports[] = {
    {"loopback", [](int participants) { return LoopbackTransports(participants); }},
    {"unix", UnixTransports},
    {"tcp", TcpTransports},
};

// Bounds loops that wait for a peer, so that a test fails instead of hanging.
class TimeLimit {
 public:
  explicit TimeLimit(std::chrono::seconds limit) : end_(std::chrono::steady_clock::now() + limit) {}
  bool passed() const { return std::chrono::steady_clock::now() > end_; }

 private:
  const std::chrono::steady_clock::time_point end_;
};

inline constexpr std::chrono::seconds kLimit{60};  // for what ends by itself

}  // namespace farandole::tests
