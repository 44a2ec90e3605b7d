// The transport over stream sockets: an ordered lane to each peer, and an early lane where there are early messages
// (lanes.h). transport.h declares MakeTransport.
//
// Poll visits only active lanes, so an idle connection costs nothing.
#include <linux/tcp.h>  // not <netinet/tcp.h>, whose tcp_info has no times
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "transport/socket_io.h"
#include "transport/tcp/lanes.h"
#include "transport/transport.h"

namespace farandole {
namespace {

// To ask a few sockets directly costs less than to ask the poller first (docs/benchmarks/tcp.md#waiting).
constexpr size_t kAskedLanes = 4;

// Adds the kernel's counts of a connection. Returns false for a socket without them. A kernel that knows fewer of them
// leaves the others zero.
bool AddCounts(int socket, LinkFacts* facts) {
  tcp_info counts{};
  socklen_t size = sizeof counts;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &counts, &size) != 0) return false;
  facts->sent_bytes += counts.tcpi_bytes_acked;
  facts->received_bytes += counts.tcpi_bytes_received;
  facts->sending_us += counts.tcpi_busy_time - std::min(counts.tcpi_busy_time, counts.tcpi_rwnd_limited);
  facts->retransmits += counts.tcpi_total_retrans;
  if (facts->round_trip_us == 0) facts->round_trip_us = counts.tcpi_rtt;
  return true;
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::vector<PeerConnection> connections, int world_size) : owner_(getpid()) {
    size_t early_lanes = 0;
    for (PeerConnection& each : connections) {
      const size_t peer = IndexOf(each.peer);
      ordered_.resize(std::max(ordered_.size(), peer + 1));
      early_.resize(ordered_.size());
      if (each.lane == Lane::kOrdered) {
        ordered_[peer] = std::make_unique<OrderedLane>(std::move(each), &shared_);
      } else {
        ++early_lanes;
        early_[peer] = std::make_unique<EarlyLane>(std::move(each), &shared_);
      }
    }
    const size_t peers = world_size > 1 ? static_cast<size_t>(world_size) - 1 : std::max(early_lanes, size_t{1});
    shared_.credit_bytes = kEarlyBytes / peers;
  }

  // Drains early data first: closing a socket with unread bytes resets the connection, and the peer would lose our last
  // messages. A forked child must not do this, since the sockets are shared with its parent.
  ~TcpTransport() override {
    EndSending();
    for (const auto& lane : early_) {
      char unread[4096];
      if (getpid() != owner_ || !lane) continue;
      while (recv(lane->descriptor(), unread, sizeof unread, MSG_DONTWAIT) > 0) continue;
    }
  }

  void Listen(MessageSink* sink) override { shared_.sink = sink; }

  // ---- messages

  void PostSend(int peer, const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes,
                uint64_t context) override {
    if (is_quiesced_) return;
    auto* const memory = static_cast<std::byte*>(const_cast<void*>(data));
    Activate(At(peer, tag.lane))->PostSend({{tag, part, size_bytes}, memory, context});
  }
  void PostReceive(int peer, const MessageTag& tag, uint32_t part, void* data, size_t size_bytes,
                   uint64_t context) override {
    if (is_quiesced_) return;
    Activate(At(peer, tag.lane))->PostReceive({{tag, part, size_bytes}, static_cast<std::byte*>(data), context});
  }

  bool Poll(std::vector<Completion>* completions) override {
    if (is_quiesced_) return false;
    bool moved = false;
    const bool asks = polls_sockets();
    for (size_t i = 0; i < active_.size(); ++i) moved |= active_[i]->Poll(asks, completions);  // the sink may add some
    awaited_lanes_ = 0;
    const auto is_idle = [this](PeerLane* lane) {
      const bool is_awaited = !lane->flushed() || lane->awaits();
      awaited_lanes_ += is_awaited ? 1 : 0;
      lane->is_active = is_awaited || lane->has_more();
      return !lane->is_active;
    };
    active_.erase(std::remove_if(active_.begin(), active_.end(), is_idle), active_.end());
    return moved;
  }
  bool polls_sockets() const override { return !is_watched_ || awaited_lanes_ <= kAskedLanes; }

  void Begin(const MessageTag& tag) override {
    shared_.begun[tag.id] = tag;
    for (const auto& lane : ordered_) {
      if (lane) lane->OnBegin();
    }
  }
  void ForgetSet(int32_t id) override { shared_.begun.erase(id); }

  // ---- the early lane

  bool CanSendEarly(int peer) const override {
    const PeerLane* const lane = At(peer, Lane::kEarly);
    return lane != nullptr && lane->open();
  }
  void Cancel(const MessageTag& tag) override {
    ForEachEarlyLane([&tag](EarlyLane* lane) { lane->Cancel(tag); });
  }
  void DropEarly(uint32_t serial) override {
    ForEachEarlyLane([serial](EarlyLane* lane) { lane->Drop(serial); });
  }
  bool HasHeader(int peer, const MessageTag& tag) const override { return early_[IndexOf(peer)]->HasHeader(tag); }
  void PostGoodbye(int peer, int left) override {
    if (is_quiesced_) return;
    early_[IndexOf(peer)]->PostGoodbye(left);
    Activate(early_[IndexOf(peer)].get());
  }

  // ---- waiting

  Status Watch(Poller* poller, uint64_t tag) override {
    is_watched_ = true;
    Status status;
    ForEachLane([&](const PeerLane& lane, size_t number) {
      if (status.ok()) status = poller->Watch(lane.descriptor(), tag | number, true);
    });
    return status;
  }
  void OnReady(uint32_t number) override {
    const Lane lane = number % 2 == 0 ? Lane::kOrdered : Lane::kEarly;
    Activate(At(static_cast<int>(number / 2), lane))->OnReady();
  }

  bool IsBroken(int peer) const override {
    const PeerLane* const lane = At(peer, Lane::kOrdered);
    return lane != nullptr && HasPeerClosed(lane->descriptor());
  }
  void AppendLinkFacts(std::vector<LinkFacts>* facts) const override {
    for (int peer = 0; IndexOf(peer) < ordered_.size(); ++peer) {
      LinkFacts counted;
      counted.peer = peer;
      bool any = false;
      for (Lane each : {Lane::kOrdered, Lane::kEarly}) {
        const PeerLane* const lane = At(peer, each);
        any |= lane != nullptr && AddCounts(lane->descriptor(), &counted);
      }
      if (any) facts->push_back(counted);
    }
  }

  // ---- ending

  void BeginQuiesce() override {
    is_quiesced_ = true;
    ForEachLane([](PeerLane& lane, size_t) { lane.Quiesce(); });
  }
  bool is_quiet() const override { return is_quiesced_; }  // all bytes move in Poll
  // close alone does not end a connection while a forked child holds a copy of the descriptor.
  void EndSending() override {
    if (getpid() != owner_) return;
    ForEachLane([](const PeerLane& lane, size_t) { shutdown(lane.descriptor(), SHUT_WR); });
  }

 private:
  static size_t IndexOf(int peer) { return static_cast<size_t>(peer); }
  // Returns null where there is no such lane.
  PeerLane* At(int peer, Lane lane) const {
    if (IndexOf(peer) >= ordered_.size()) return nullptr;
    return lane == Lane::kOrdered ? static_cast<PeerLane*>(ordered_[IndexOf(peer)].get()) : early_[IndexOf(peer)].get();
  }
  PeerLane* Activate(PeerLane* lane) {
    if (!std::exchange(lane->is_active, true)) active_.push_back(lane);
    return lane;
  }
  template <typename Visit>
  void ForEachLane(Visit visit) {  // visit(lane, number of its socket for the poller)
    for (size_t peer = 0; peer < ordered_.size(); ++peer) {
      if (ordered_[peer]) visit(*ordered_[peer], 2 * peer);
      if (early_[peer]) visit(*early_[peer], 2 * peer + 1);
    }
  }
  // Lanes that have something to say now, such as that messages are taken, say it in the next Poll.
  template <typename Visit>
  void ForEachEarlyLane(Visit visit) {  // visit(lane)
    for (const auto& lane : early_) {
      if (!lane) continue;
      visit(lane.get());
      if (!lane->flushed()) Activate(lane.get());
    }
  }

  const pid_t owner_;  // the process that made the transport
  LaneContext shared_;
  std::vector<std::unique_ptr<OrderedLane>> ordered_;  // by peer; null where there is none
  std::vector<std::unique_ptr<EarlyLane>> early_;
  std::vector<PeerLane*> active_;
  size_t awaited_lanes_ = 0;
  bool is_watched_ = false, is_quiesced_ = false;
};

}  // namespace

std::unique_ptr<Transport> MakeTransport(std::vector<PeerConnection> connections, int world_size) {
  return std::make_unique<TcpTransport>(std::move(connections), world_size);
}

}  // namespace farandole
