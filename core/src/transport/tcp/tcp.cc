// The transport over stream sockets: an ordered lane to each peer, and an early lane where there are early messages
// (lanes.h). transport.h declares MakeTransport.
//
// Only lanes with something to do are looked at, so an idle connection costs nothing.
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

struct Link {
  std::unique_ptr<OrderedLane> ordered;
  std::unique_ptr<EarlyLane> early;
  bool is_active = false;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::vector<PeerConnection> connections, int world_size);
  ~TcpTransport() override;

  void Listen(MessageSink* sink) override { shared_.sink = sink; }
  void PostSend(int peer, const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes,
                uint64_t context) override;
  void PostReceive(int peer, const MessageTag& tag, uint32_t part, void* data, size_t size_bytes,
                   uint64_t context) override;
  bool Poll(std::vector<Completion>* completions) override;
  bool finds_by_itself() const override { return !is_watched_ || awaited_lanes_ <= kAskedLanes; }
  void Begin(const MessageTag& tag) override;

  bool CanSendEarly(int peer) const override {
    const Link* const link = At(peer);
    return link != nullptr && link->early && link->early->stream().open();
  }
  void Cancel(const MessageTag& tag) override;
  void DropEarly(uint32_t serial) override;
  bool HasHeard(int peer, const MessageTag& tag) const override { return At(peer)->early->HasHeard(tag); }
  void PostGoodbye(int peer, int left) override;

  Status Watch(Poller* poller, uint64_t tag) override;
  bool OnReady(uint32_t number) override;
  bool IsBroken(int peer) const override;
  void AppendLinkFacts(std::vector<LinkFacts>* facts) const override;
  void BeginQuiesce() override;
  bool is_quiet() const override { return is_quiesced_; }  // all bytes move in Poll
  void EndSending() override;

 private:
  const Link* At(int peer) const {
    return static_cast<size_t>(peer) < links_.size() ? &links_[static_cast<size_t>(peer)] : nullptr;
  }
  Link& Activate(int peer);
  template <typename Visit>
  void ForEachEarlyLane(Visit visit);  // visit(lane)
  template <typename Visit>
  void ForEachSocket(Visit visit) const;  // visit(peer, lane, descriptor)

  const pid_t owner_;        // the process that made the transport
  std::vector<Link> links_;  // by peer
  std::vector<int> active_;  // peers
  size_t awaited_lanes_ = 0;
  LaneContext shared_;
  bool is_watched_ = false, is_quiesced_ = false;
};

TcpTransport::TcpTransport(std::vector<PeerConnection> connections, int world_size) : owner_(getpid()) {
  size_t early_lanes = 0;
  for (PeerConnection& each : connections) {
    const int on = 1;  // switches Nagle's delay off; a Unix socket refuses, and has no delay
    setsockopt(each.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const auto at = static_cast<size_t>(each.peer);
    if (links_.size() <= at) links_.resize(at + 1);
    if (each.lane == Lane::kOrdered) {
      links_[at].ordered =
          std::make_unique<OrderedLane>(each.peer, std::move(each.socket), std::move(each.name), &shared_);
    } else {
      ++early_lanes;
      links_[at].early = std::make_unique<EarlyLane>(each.peer, std::move(each.socket), std::move(each.name), &shared_);
    }
  }
  const size_t peers = world_size > 1 ? static_cast<size_t>(world_size) - 1 : std::max(early_lanes, size_t{1});
  for (Link& link : links_) {
    if (link.early) link.early->SetCredit(kEarlyBytes / peers);
  }
}

// Reads what was sent early before it closes, since closing with unread bytes would discard what this rank sent last.
// The peers' ends belong to the parent if this process is a forked child.
TcpTransport::~TcpTransport() {
  EndSending();
  for (const Link& link : links_) {
    if (getpid() == owner_ && link.early) link.early->DrainBeforeClose();
  }
}

template <typename Visit>
void TcpTransport::ForEachSocket(Visit visit) const {
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const Link& link = links_[peer];
    if (link.ordered) visit(peer, Lane::kOrdered, link.ordered->stream().descriptor());
    if (link.early && link.early->stream().open()) visit(peer, Lane::kEarly, link.early->stream().descriptor());
  }
}

// ---- messages

Link& TcpTransport::Activate(int peer) {
  Link& link = links_[static_cast<size_t>(peer)];
  if (!std::exchange(link.is_active, true)) active_.push_back(peer);
  return link;
}

void TcpTransport::PostSend(int peer, const MessageTag& tag, uint32_t part, const void* data, size_t size_bytes,
                            uint64_t context) {
  if (is_quiesced_) return;
  Link& link = Activate(peer);
  if (tag.lane == Lane::kOrdered) {
    link.ordered->PostSend(tag, part, data, size_bytes, context);
  } else {
    link.early->PostSend(tag, part, data, size_bytes, context);
  }
}

void TcpTransport::PostReceive(int peer, const MessageTag& tag, uint32_t part, void* data, size_t size_bytes,
                               uint64_t context) {
  if (is_quiesced_) return;
  Link& link = Activate(peer);
  if (tag.lane == Lane::kOrdered) {
    link.ordered->PostReceive(tag, part, data, size_bytes, context);
  } else {
    link.early->PostReceive(tag, part, data, size_bytes, context);
  }
}

// Moves what this lane can move now. Returns whether it moved anything.
template <typename AnyLane>
bool Move(AnyLane* lane, bool asks, std::vector<Transport::Completion>* completions) {
  bool moved = false;
  if (lane->sends() && (asks || lane->stream().may_write())) moved |= lane->Flush(completions);
  if ((asks && lane->awaits()) || lane->stream().may_read() || lane->has_completed())
    moved |= lane->Receive(completions);
  return moved;
}

template <typename AnyLane>
bool IsBusy(const AnyLane& lane) {
  return lane.sends() || lane.awaits() || lane.has_completed();
}

// A long message takes several calls, and the poller does not report the rest of it again.
template <typename AnyLane>
bool HasMore(const AnyLane& lane) {
  return lane.stream().open() && lane.stream().may_read() && !lane.stream().waits();
}

bool TcpTransport::Poll(std::vector<Completion>* completions) {
  if (is_quiesced_) return false;
  bool moved = false;
  const bool asks = finds_by_itself();
  for (size_t i = 0; i < active_.size(); ++i) {  // the sink may activate more of them
    Link& link = links_[static_cast<size_t>(active_[i])];
    if (link.ordered) moved |= Move(link.ordered.get(), asks, completions);
    if (link.early) moved |= Move(link.early.get(), asks, completions);
  }
  awaited_lanes_ = 0;
  const auto is_idle = [this](int peer) {
    Link& link = links_[static_cast<size_t>(peer)];
    const bool ordered = link.ordered && IsBusy(*link.ordered), early = link.early && IsBusy(*link.early);
    awaited_lanes_ += (ordered ? 1 : 0) + (early ? 1 : 0);
    const bool has_more = (link.ordered && HasMore(*link.ordered)) || (link.early && HasMore(*link.early));
    link.is_active = ordered || early || has_more;
    return !link.is_active;
  };
  active_.erase(std::remove_if(active_.begin(), active_.end(), is_idle), active_.end());
  return moved;
}

void TcpTransport::Begin(const MessageTag& tag) {
  shared_.begun[tag.id] = tag;
  for (const Link& link : links_) {
    if (link.ordered) link.ordered->OnBegin();
  }
}

// Lanes that have something to say now, such as that messages are taken, say it in the next Poll.
template <typename Visit>
void TcpTransport::ForEachEarlyLane(Visit visit) {
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    EarlyLane* const lane = links_[peer].early.get();
    if (lane == nullptr) continue;
    visit(lane);
    if (lane->sends()) Activate(static_cast<int>(peer));
  }
}

void TcpTransport::Cancel(const MessageTag& tag) {
  ForEachEarlyLane([&tag](EarlyLane* lane) { lane->Cancel(tag); });
}

void TcpTransport::DropEarly(uint32_t serial) {
  ForEachEarlyLane([serial](EarlyLane* lane) { lane->Drop(serial); });
}

void TcpTransport::PostGoodbye(int peer, int left) {
  if (!is_quiesced_) Activate(peer).early->PostGoodbye(left);
}

// ---- waiting

Status TcpTransport::Watch(Poller* poller, uint64_t tag) {
  is_watched_ = true;
  Status status;
  ForEachSocket([&](size_t peer, Lane lane, int descriptor) {
    if (status.ok()) status = poller->Watch(descriptor, tag | (2 * peer + static_cast<size_t>(lane)), true);
  });
  return status;
}

bool TcpTransport::OnReady(uint32_t number) {
  Link& link = Activate(static_cast<int>(number / 2));
  if (static_cast<Lane>(number % 2) == Lane::kOrdered) {
    link.ordered->stream().OnReady();
  } else {
    link.early->stream().OnReady();
  }
  return true;
}

bool TcpTransport::IsBroken(int peer) const {
  const Link* const link = At(peer);
  return link != nullptr && link->ordered && HasPeerClosed(link->ordered->stream().descriptor());
}

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

void TcpTransport::AppendLinkFacts(std::vector<LinkFacts>* facts) const {
  int last_peer = -1;
  ForEachSocket([&](size_t at, Lane, int descriptor) {
    const auto peer = static_cast<int>(at);
    LinkFacts counted;
    counted.peer = peer;
    LinkFacts* const found = last_peer == peer ? &facts->back() : &counted;
    if (!AddCounts(descriptor, found)) return;
    if (last_peer != peer) facts->push_back(counted);
    last_peer = peer;
  });
}

// ---- ending

void TcpTransport::BeginQuiesce() {
  is_quiesced_ = true;
  for (const Link& link : links_) {
    if (link.ordered) link.ordered->Quiesce();
    if (link.early) link.early->Quiesce();
  }
}

// close alone does not end a connection while a forked child holds a copy of the descriptor.
void TcpTransport::EndSending() {
  if (getpid() != owner_) return;
  ForEachSocket([](size_t, Lane, int descriptor) { shutdown(descriptor, SHUT_WR); });
}

}  // namespace

std::unique_ptr<Transport> MakeTransport(std::vector<PeerConnection> connections, int world_size) {
  return std::make_unique<TcpTransport>(std::move(connections), world_size);
}

}  // namespace farandole
