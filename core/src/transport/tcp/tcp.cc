// The transport over stream sockets. transport.h declares MakeTransport.
//
//   posts   one connection to each peer; a queue for each direction, moved in order. The bytes have no heads: both ends
//           know the order of posts
//   puts    a second connection where puts are possible (put_stream.h)
#include <linux/tcp.h>  // not <netinet/tcp.h>, whose tcp_info has no times
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <utility>

#include "common/failpoint.h"
#include "transport/socket_io.h"
#include "transport/tcp/put_stream.h"
#include "transport/transport.h"

namespace farandole {
namespace {

constexpr size_t kCopiedPutBytes = 16 << 10;  // beyond, copying costs more than a list of pieces for the system call
constexpr int kAskedStreams = 4;              // up to so many awaited streams are read without asking the poller

struct Post {
  std::byte* data;  // of a send: only read
  size_t left_bytes;
  uint64_t context;
};

// The connection to a peer for posts.
struct Link {
  Descriptor socket;
  std::string name;
  std::deque<Post> posts[2] = {};  // receives, sends
  Status failed = {};              // final
};

struct Puts {
  PutStream stream;
  int awaited = 0;  // operations that expect data from the peer
  bool is_readable = false;
  bool is_watched_for_writing = false;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::vector<PeerConnection> connections);
  ~TcpTransport() override;

  void PostSend(int peer, uint32_t, const void* data, size_t size_bytes, uint64_t context) override {
    Add(peer, kSends, {static_cast<std::byte*>(const_cast<void*>(data)), size_bytes, context});
  }
  void PostReceive(int peer, uint32_t, void* data, size_t size_bytes, uint64_t context) override {
    Add(peer, kReceives, {static_cast<std::byte*>(data), size_bytes, context});
  }
  bool Poll(std::vector<Completion>* completions) override;

  bool CanPut(int peer) const override {
    return static_cast<size_t>(peer) < puts_.size() && puts_[static_cast<size_t>(peer)].stream.open();
  }
  uint64_t PostPut(int peer, const PutHead& head, const std::vector<Slice>& data) override;
  uint64_t sent(int peer) const override { return puts_[static_cast<size_t>(peer)].stream.sent_bytes(); }
  void Detach(int peer) override { puts_[static_cast<size_t>(peer)].stream.Detach(); }
  void AwaitPuts(int peer, int more) override;
  bool PollPuts(PutSink* sink) override;
  bool finds_puts() const override { return awaited_peers_ <= kAskedStreams; }

  Status Watch(Poller* poller, uint64_t tag) override;
  bool OnReady(uint32_t number) override;
  bool IsBroken(int peer) const override;
  void AppendLinkFacts(std::vector<LinkFacts>* facts) const override;
  void BeginQuiesce() override;
  bool is_quiet() const override { return is_quiesced_; }  // all bytes move in Poll
  void EndSending() override;

 private:
  enum Direction { kReceives, kSends };

  void Add(int peer, Direction direction, const Post& post);
  static bool Move(Link* link, Direction direction, std::vector<Completion>* completions);
  static Status MoveFirst(Link* link, Direction direction, size_t* moved_bytes);
  void Flush(int peer, PutSink* sink, bool* moved);
  uint64_t TagOfPuts(size_t peer) const { return tag_ | (2 * peer + 1); }

  const pid_t owner_;                         // the process that made the transport
  std::vector<std::unique_ptr<Link>> links_;  // by peer, null where there is none
  std::vector<Link*> active_[2];              // with posts of the direction, in the order of their first one
  std::vector<Puts> puts_;                    // by peer, not open where there is none
  int awaited_peers_ = 0;
  bool is_quiesced_ = false;
  Poller* poller_ = nullptr;
  uint64_t tag_ = 0;
};

TcpTransport::TcpTransport(std::vector<PeerConnection> connections) : owner_(getpid()) {
  for (PeerConnection& each : connections) {
    const int on = 1;  // switches Nagle's delay off; a Unix socket refuses, and has no delay
    setsockopt(each.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const auto at = static_cast<size_t>(each.peer);
    links_.resize(std::max(links_.size(), at + 1));
    puts_.resize(links_.size());
    if (each.for_puts) {
      puts_[at].stream = PutStream(std::move(each.socket), each.peer);
    } else {
      links_[at] = std::make_unique<Link>(Link{std::move(each.socket), std::move(each.name)});
    }
  }
}

// Reads what was put before it closes, since closing with unread bytes would discard what this rank sent last. The
// peers' ends belong to the parent if this process is a forked child.
TcpTransport::~TcpTransport() {
  EndSending();
  for (const Puts& each : puts_) {
    char unread[4096];
    while (getpid() == owner_ && each.stream.open() &&
           recv(each.stream.descriptor(), unread, sizeof unread, MSG_DONTWAIT) > 0)
      continue;
  }
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
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    LinkFacts found;
    found.peer = static_cast<int>(peer);
    const bool has_link = links_[peer] && AddCounts(links_[peer]->socket.get(), &found);
    const bool has_puts = puts_[peer].stream.open() && AddCounts(puts_[peer].stream.descriptor(), &found);
    if (has_link || has_puts) facts->push_back(found);
  }
}

// close alone does not end a connection while a forked child holds a copy of the descriptor.
void TcpTransport::EndSending() {
  if (getpid() != owner_) return;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (links_[peer]) shutdown(links_[peer]->socket.get(), SHUT_WR);
    if (puts_[peer].stream.open()) shutdown(puts_[peer].stream.descriptor(), SHUT_WR);
  }
}

// ---- posts

void TcpTransport::Add(int peer, Direction direction, const Post& post) {
  Link* const link = links_[static_cast<size_t>(peer)].get();
  if (is_quiesced_) return;
  if (link->posts[direction].empty()) active_[direction].push_back(link);
  link->posts[direction].push_back(post);
}

bool TcpTransport::Poll(std::vector<Completion>* completions) {
  bool moved = false;
  for (const Direction direction : {kSends, kReceives}) {
    std::vector<Link*>& active = active_[direction];
    for (Link* link : active) moved |= Move(link, direction, completions);
    const auto is_idle = [direction](const Link* link) { return link->posts[direction].empty(); };
    active.erase(std::remove_if(active.begin(), active.end(), is_idle), active.end());
  }
  return moved;
}

bool TcpTransport::Move(Link* link, Direction direction, std::vector<Completion>* completions) {
  std::deque<Post>& posts = link->posts[direction];
  bool moved = false;
  while (!posts.empty()) {
    size_t moved_bytes = 0;
    if (link->failed.ok()) link->failed = MoveFirst(link, direction, &moved_bytes);
    if (!link->failed.ok()) {
      completions->push_back({posts.front().context, link->failed});
      for (auto& each : link->posts) each.clear();
      return true;
    }
    moved |= moved_bytes > 0;
    if (posts.front().left_bytes > 0) break;  // a second try would find the connection still full or empty
    completions->push_back({posts.front().context, Status::Ok()});
    posts.pop_front();
  }
  return moved;
}

// Several posts in one system call, 64 KB to 512 KB of them, made an allreduce between two hosts of two ranks slower by
// a fifth: data in small parts keep both ends at work.
Status TcpTransport::MoveFirst(Link* link, Direction direction, size_t* moved_bytes) {
  FRD_RETURN_IF_ERROR(direction == kSends ? FRD_FAILPOINT_STATUS("link.send") : FRD_FAILPOINT_STATUS("link.recv"));
  Post& post = link->posts[direction].front();
  const int socket = link->socket.get();
  const ssize_t moved = direction == kSends ? send(socket, post.data, post.left_bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                            : recv(socket, post.data, post.left_bytes, MSG_DONTWAIT);
  if (moved == 0) return {Code::kPeerLost, link->name + " left: it closed the connection to this rank"};
  if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return Status::Ok();
  if (moved < 0) return MoveFailed((direction == kSends ? "sending to " : "receiving from ") + link->name);
  *moved_bytes = static_cast<size_t>(moved);
  post.data += moved;
  post.left_bytes -= *moved_bytes;
  return Status::Ok();
}

// ---- puts

uint64_t TcpTransport::PostPut(int peer, const PutHead& head, const std::vector<Slice>& data) {
  PutStream& stream = puts_[static_cast<size_t>(peer)].stream;
  stream.Queue(head.data(), head.size());
  size_t size_bytes = 0;
  for (const Slice& slice : data) size_bytes += slice.size_bytes;
  const auto queue = size_bytes <= kCopiedPutBytes ? &PutStream::Queue : &PutStream::QueueReference;
  for (const Slice& slice : data) (stream.*queue)(slice.data, slice.size_bytes);
  return stream.queued_bytes();
}

void TcpTransport::AwaitPuts(int peer, int more) {
  int& awaited = puts_[static_cast<size_t>(peer)].awaited;
  awaited_peers_ += (awaited + more > 0 ? 1 : 0) - (awaited > 0 ? 1 : 0);
  awaited += more;
}

// With few streams that bring data, reading each costs less than poll; with many, only those that poll has reported are
// read. Reading finds that the other end has closed, behind what it sent before.
bool TcpTransport::PollPuts(PutSink* sink) {
  bool moved = false;
  for (size_t peer = 0; peer < puts_.size(); ++peer) {
    Puts& from = puts_[peer];
    if (!from.stream.open()) continue;
    if (!from.stream.flushed()) Flush(static_cast<int>(peer), sink, &moved);
    const bool was_readable = std::exchange(from.is_readable, false);
    if (!was_readable && (from.awaited == 0 || !finds_puts())) continue;
    const Status status = from.stream.Receive(sink, &moved);
    if (status.ok()) continue;
    moved = true;
    if (poller_ != nullptr) poller_->Forget(from.stream.descriptor());
    from.stream.Close();
    sink->OnEnd(static_cast<int>(peer), status);
  }
  return moved;
}

// A failed send that only says that the other end has closed is no end, since reading finds that.
void TcpTransport::Flush(int peer, PutSink* sink, bool* moved) {
  Puts& to = puts_[static_cast<size_t>(peer)];
  bool sent = false;
  const Status status = to.stream.Flush(&sent);
  *moved |= sent;
  // Wakes a sleeping rank when there is room again.
  const bool blocked = status.ok() && !sent;
  if (poller_ != nullptr && blocked != to.is_watched_for_writing && (blocked || to.stream.flushed())) {
    poller_->WatchWriting(to.stream.descriptor(), TagOfPuts(static_cast<size_t>(peer)), blocked);
    to.is_watched_for_writing = blocked;
  }
  if (status.ok()) return;
  to.stream.Drop();
  if (status.code() != Code::kPeerLost) sink->OnEnd(peer, status);
}

// ---- waiting and ending

// Connections for posts only wake: each Poll tries them.
Status TcpTransport::Watch(Poller* poller, uint64_t tag) {
  poller_ = poller;
  tag_ = tag;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const PutStream& puts = puts_[peer].stream;
    if (links_[peer]) FRD_RETURN_IF_ERROR(poller->Watch(links_[peer]->socket.get(), tag | 2 * peer, true));
    if (puts.open()) FRD_RETURN_IF_ERROR(poller->Watch(puts.descriptor(), TagOfPuts(peer)));
  }
  return Status::Ok();
}

bool TcpTransport::OnReady(uint32_t number) {
  if (number % 2 == 0) return false;
  puts_[number / 2].is_readable = true;
  return true;
}

bool TcpTransport::IsBroken(int peer) const {
  const auto at = static_cast<size_t>(peer);
  return at < links_.size() && links_[at] && HasPeerClosed(links_[at]->socket.get());
}

void TcpTransport::BeginQuiesce() {
  is_quiesced_ = true;
  for (auto& active : active_) active.clear();
  for (const auto& link : links_) {
    if (link) link->posts[kReceives].clear(), link->posts[kSends].clear();
  }
  for (Puts& each : puts_) each.stream.Drop();
}

}  // namespace

std::unique_ptr<Transport> MakeTransport(std::vector<PeerConnection> connections) {
  return std::make_unique<TcpTransport>(std::move(connections));
}

}  // namespace farandole
