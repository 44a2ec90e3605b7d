// A rank whose peers are bare sockets, so that a test may send whatever a faulty peer might.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/both_lanes.h"
#include "transport/frame_stream.h"

namespace farandole::tests {

inline FrameHeader MakeHeader(FrameKind kind, const MessageTag& tag, uint32_t part, uint64_t size_bytes) {
  return {kind, part, size_bytes, 0, tag};
}

class RankAmongRawPeers {
 public:
  explicit RankAmongRawPeers(int peers = 1, int buffer_bytes = 1 << 20) {
    std::vector<PeerConnection> connections;
    for (int peer = 1; peer <= peers; ++peer) {
      for (Lane lane : {Lane::kOrdered, Lane::kEarly}) {
        auto [mine, theirs] = UnixPair();
        setsockopt(theirs.get(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
        connections.push_back({peer, lane, std::move(mine), "rank " + std::to_string(peer)});
        sockets_[{peer, lane}] = std::move(theirs);
      }
    }
    rank = std::make_unique<DrivenRank>(MakeTransport(std::move(connections)));
  }

  // Sends all of it, while the rank reads.
  void SendBytes(int peer, Lane lane, const void* data, size_t size_bytes) {
    const auto* from = static_cast<const char*>(data);
    const TimeLimit limit(kLimit);
    while (size_bytes > 0 && !limit.passed()) {
      const ssize_t sent = send(SocketOf(peer, lane), from, size_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) from += sent;
      if (sent > 0) size_bytes -= static_cast<size_t>(sent);
      if (sent < 0 && errno != EAGAIN) return;
      PollAWhile();
    }
  }
  void SendFrame(int peer, const FrameHeader& header, Lane lane = Lane::kEarly) {
    std::vector<std::byte> bytes(sizeof header + (header.has_payload() ? header.size_bytes : 0), std::byte{7});
    std::memcpy(bytes.data(), &header, sizeof header);
    SendBytes(peer, lane, bytes.data(), bytes.size());
  }
  // A Unix socket hands over at once, so a few polls read everything.
  void PollAWhile() {
    for (int i = 0; i < 3 || (i < 100 && moved_); ++i) moved_ = rank->Poll();
  }

  int SocketOf(int peer, Lane lane) { return sockets_[{peer, lane}].get(); }
  Transport* operator->() const { return rank->operator->(); }
  NotingSink& sink() const { return rank->sink; }

  std::unique_ptr<DrivenRank> rank;

 private:
  std::map<std::pair<int, Lane>, Descriptor> sockets_;
  bool moved_ = false;
};

}  // namespace farandole::tests
