#include "p2p/messenger.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "common/waiting.h"
#include "transport/shm/doorbell.h"
#include "transport/socket_io.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

// What a rank keeps for all others together, and the least and most for one of them.
constexpr size_t kAllCreditBytes = 64 << 20, kMinCreditBytes = 128 << 10, kMaxCreditBytes = 1 << 20;
constexpr milliseconds kTick{100};           // between two looks for the end of the epoch
constexpr milliseconds kNap{1};              // of the Messenger's thread while others do its work
constexpr milliseconds kConfirmation{1000};  // for the engine to say why a rank is gone
constexpr milliseconds kRefusalLimit{1000};  // so long nobody listens where a rank did: it is gone
constexpr size_t kFewPeers = 8;              // so many are asked again and again before a wait sleeps
constexpr milliseconds kDrain{100};
constexpr size_t kMaxLinks = 2;  // with one rank: each of the two makes one at most

size_t CreditFor(int world_size) {
  return std::clamp(kAllCreditBytes / static_cast<size_t>(world_size), kMinCreditBytes, kMaxCreditBytes);
}

// Ends our direction of the connections, and waits for a moment for the ends of the others.
void Drain(std::vector<Descriptor> sockets) {
  for (const Descriptor& socket : sockets) ::shutdown(socket.get(), SHUT_WR);
  const TimePoint limit = Now() + kDrain;
  for (const Descriptor& socket : sockets) {
    std::array<std::byte, 4096> dropped;
    size_t count = 0;
    Status received;
    while (received.ok() && Now() < limit && WaitFor(socket.get(), POLLIN, limit))
      received = TryRecv(socket.get(), dropped.data(), dropped.size(), &count);
  }
}

const std::string& EndpointOf(const World& world, int rank) {
  const Layout& layout = world.layout;
  const bool shares_node = layout.node_of[static_cast<size_t>(rank)] == layout.node_of[static_cast<size_t>(world.rank)];
  const PeerInfo& peer = world.peers[static_cast<size_t>(rank)];
  return shares_node ? peer.segment_endpoint : peer.data_endpoint;
}

}  // namespace

Messenger::Messenger(World* world, Reason reason)
    : world_(world),
      rank_(world != nullptr ? world->rank : 0),
      size_(world != nullptr ? world->size : 1),
      reason_(std::move(reason)),
      pauses_(world != nullptr && world->shares_cores() ? 0 : Waiter::kPauses) {
  context_.rank = rank_;
  context_.credit_bytes = CreditFor(size_);
  if (world != nullptr) acceptors_ = std::move(world->acceptors);
}

// ---- beginning

Status Messenger::Check(const Transfer& transfer) const {
  const bool is_known = transfer.peer >= 0 && transfer.peer < size_;
  if (!is_known && (transfer.sends || transfer.peer != kAnySource)) {
    return Invalid(transfer.Title(), ": rank ", transfer.peer, " is out of range; this job has ranks 0 to ", size_ - 1);
  }
  if (transfer.data == nullptr && transfer.size_bytes > 0) return Invalid(transfer.Title(), ": it has no memory");
  return Status::Ok();
}

Status Messenger::Submit(const TransferPtr& transfer) {
  FRD_RETURN_IF_ERROR(Check(*transfer));
  const Lock lock(mutex_);
  if (!over_.ok()) return {over_.code(), transfer->Title(), " cannot start on rank ", rank_, ": ", over_.message()};
  if (world_ != nullptr && !thread_.joinable()) {
    FRD_RETURN_IF_ERROR(MakeEvent(&wake_));
    thread_ = std::thread(&Messenger::Run, this);
    for (AuthenticatedPeer& arrived : world_->arrived) Admit(std::move(arrived));
    world_->arrived.clear();
  }
  Begin(transfer);
  Announce();
  return Status::Ok();
}

void Messenger::Begin(const TransferPtr& transfer) {
  if (!transfer->sends) return BeginReceive(transfer);
  if (transfer->peer == rank_) return SendToSelf(transfer);
  BeginSend(transfer);
}

void Messenger::BeginSend(const TransferPtr& send) {
  Peer& peer = peers_[send->peer];
  if (peer.links.empty() || peer.lost_since) return NeedPeer(send->peer, send);
  peer.links.front()->Send(send);
  Pump(&peer, 0);
}

void Messenger::BeginReceive(const TransferPtr& receive) {
  if (const ArrivalPtr arrival = context_.matcher.Post(receive)) return TakeArrival(*arrival, receive);
  if (receive->peer == kAnySource || receive->peer == rank_) return;
  const auto peer = peers_.find(receive->peer);
  const bool is_linked = peer != peers_.end() && !peer->second.links.empty() && !peer->second.lost_since;
  if (!is_linked) NeedPeer(receive->peer, nullptr);
}

// Connects to the rank, unless that is under way, or the rank is lost. transfer: a send that has no link.
void Messenger::NeedPeer(int rank, const TransferPtr& transfer) {
  Peer& peer = peers_[rank];
  if (transfer) peer.unsent.push_back(transfer);
  if (!peer.failed.ok()) return FailPeer(rank, &peer, peer.failed);
  if (peer.lost_since || peer.connector || !peer.links.empty()) return;
  if (EndpointOf(*world_, rank).empty()) {
    const std::string& why = world_->peers[static_cast<size_t>(rank)].listening_error;
    return FailPeer(rank, &peer, Internal(world_->NameOf(rank), " cannot be reached: ", why));
  }
  Connect(rank, &peer, Now());
  Kick();
}

void Messenger::Connect(int rank, Peer* peer, TimePoint when) {
  const Hello mine{kMessagePurpose, static_cast<uint32_t>(rank_), 0};
  peer->connector.emplace(EndpointOf(*world_, rank), world_->key, mine, when);
}

// A small message is kept, so that the send ends before its receive is posted.
void Messenger::SendToSelf(const TransferPtr& send) {
  auto arrival = std::make_shared<Arrival>();
  arrival->source = rank_;
  arrival->dtype = send->dtype;
  arrival->size_bytes = send->size_bytes;
  const size_t cost = Link::CostOf(send->size_bytes);
  const TransferPtr receive = context_.matcher.Arrive(send->key, rank_);
  if (!receive && send->size_bytes <= Link::kEagerBytes && self_kept_bytes_ + cost <= kMaxCreditBytes) {
    self_kept_bytes_ += cost;
    arrival->kept = std::make_unique<std::byte[]>(send->size_bytes);
    if (send->size_bytes > 0) std::memcpy(arrival->kept.get(), send->data, send->size_bytes);
    arrival->is_complete = true;
    context_.Complete(send, Status::Ok());
  } else {
    arrival->local = send;
  }
  if (receive) return TakeArrival(*arrival, receive);
  context_.matcher.Keep(send->key, std::move(arrival));
}

// The receive has been posted, and takes the message.
void Messenger::TakeArrival(Arrival& arrival, const TransferPtr& receive) {
  const bool is_kept = arrival.kept != nullptr;
  if (!is_kept && !arrival.local) {
    arrival.link->Take(arrival, receive);
    return PumpAll(arrival.source);
  }
  const bool fits = context_.Fits(receive, arrival.source, arrival.dtype, arrival.size_bytes);
  if (is_kept && !arrival.is_complete) {  // its link goes on
    arrival.receive = fits ? receive : nullptr;
    arrival.is_dropped = !fits;
    return;
  }
  if (fits) {
    const std::byte* const from = is_kept ? arrival.kept.get() : arrival.local->data;
    if (arrival.size_bytes > 0) std::memcpy(receive->data, from, arrival.size_bytes);
    context_.Complete(receive, Status::Ok());
  }
  if (arrival.local) context_.Complete(arrival.local, Status::Ok());
  if (is_kept && arrival.source == rank_) self_kept_bytes_ -= Link::CostOf(arrival.size_bytes);
  if (arrival.link == nullptr) return;
  arrival.link->ReturnCredit(arrival.size_bytes);
  PumpAll(arrival.source);
}

// ---- progress

bool Messenger::Poll(const TransferPtr& transfer) {
  if (transfer->done) return true;
  const Lock lock(mutex_);
  Progress(transfer->peer);
  return transfer->done;
}

// Without memory, what is under way cannot go on.
void Messenger::Progress(int rank) {
  try {
    PumpAll(rank);
  } catch (const std::exception&) {
    FailAll(Internal("out of memory"));
  }
  Announce();
}

bool Messenger::Wait(const TransferPtr& transfer, int64_t limit_ms) {
  const TimePoint limit = Now() + milliseconds(limit_ms);
  Lock lock(mutex_);
  const bool asks_many = transfer->peer == kAnySource && peers_.size() > kFewPeers;
  Waiter waiter(asks_many ? 0 : pauses_, /*yields=*/0);  // on a busy machine a yield may take longer than a sleep
  ++waits_;
  ++waiters_;
  const auto go = [this](void*) {
    if (--waiters_ > 0) return;
    quiet_until_ = Now() + kNap;
    if (sleeps_long_) background_.notify_one();
  };
  const std::unique_ptr<void, decltype(go)> guard(this, go);  // with the lock, also after an exception
  Kick();
  while (!transfer->done && !stopping_) {
    Progress(transfer->peer);
    if (transfer->done) break;
    lock.unlock();
    const bool looks_again = waiter.Again();
    lock.lock();
    if (looks_again) continue;
    if (Now() >= limit) break;
    if (polling_ || world_ == nullptr) {
      changed_.wait_until(lock, limit, [&] { return transfer->done || stopping_ || (!polling_ && world_ != nullptr); });
    } else {
      PollOnce(&lock, limit);
    }
  }
  return transfer->done;
}

// Naps while others do its work, and sleeps while one of them waits long.
void Messenger::Run() {
  Lock lock(mutex_);
  uint64_t waits = 0;
  while (!stopping_) {
    if (polling_ || waiters_ > 0 || Now() < quiet_until_) {
      sleeps_long_ = waiters_ > 0 && waits_ == std::exchange(waits, waits_);
      background_.wait_for(lock, sleeps_long_ ? kTick : kNap);
      sleeps_long_ = false;
    } else {
      PollOnce(&lock, Now() + kTick);
    }
  }
}

// Sleeps until a socket is ready, the time is up or somebody kicks, and then does what can be done.
void Messenger::PollOnce(Lock* lock, TimePoint until) {
  try {
    PollSet set;
    Watch(&set, until);
    polling_ = true;
    lock->unlock();
    set.Wait();
    lock->lock();
    polling_ = false;
    if (set.ready(wake_)) DrainEvent(wake_.get());
    if (!stopping_) Step(set, Now());
  } catch (const std::exception&) {
    if (!lock->owns_lock()) lock->lock();
    polling_ = false;
    FailAll(Internal("out of memory"));
  }
  announced_ = context_.ended;
  changed_.notify_all();
}

void Messenger::Watch(PollSet* set, TimePoint until) const {
  set->Add(wake_, POLLIN);
  const TimePoint now = Now();
  for (const Acceptor& each : acceptors_) {
    if (now >= accepts_again_) each.Watch(set);
  }
  for (const auto& [rank, peer] : peers_) {
    if (peer.connector) peer.connector->Watch(set);
    for (const auto& link : peer.links)
      set->Add(link->socket(), static_cast<short>(POLLIN | (link->flushed() ? 0 : POLLOUT)));
  }
  set->WakeAt(std::min(until, now + kTick));
}

void Messenger::Step(const PollSet& set, TimePoint now) {
  std::vector<AuthenticatedPeer> arrived;
  for (Acceptor& each : acceptors_) {
    const Status stepped = each.Step(set, now, &arrived);
    if (stepped.ok()) continue;
    each.Reject(stepped.message());  // no descriptor is free, perhaps; the queue of the listener keeps the connections
    accepts_again_ = now + kTick;
  }
  for (AuthenticatedPeer& peer : arrived) Admit(std::move(peer));
  for (auto& [rank, peer] : peers_) StepConnector(rank, &peer, now);
  PumpReady(set);
  CheckEnds(now);
}

void Messenger::Admit(AuthenticatedPeer arrived) {
  const auto rank = static_cast<int>(arrived.hello.rank);
  const bool is_peer = arrived.hello.rank < static_cast<uint32_t>(size_) && rank != rank_ && over_.ok();
  if (!is_peer || arrived.hello.purpose != kMessagePurpose) return;
  const Peer& peer = peers_[rank];
  const bool is_lost = peer.lost_since || !peer.failed.ok();
  if (!is_lost && peer.links.size() < kMaxLinks) AddLink(rank, std::move(arrived.connection));
}

void Messenger::StepConnector(int rank, Peer* peer, TimePoint now) {
  if (peer->lost_since) peer->connector.reset();
  if (!peer->connector) return;
  const Status status = peer->connector->Step(now);
  const bool finds_nobody = peer->connector->finds_nobody();
  if (!finds_nobody || peer->refused_since == TimePoint()) peer->refused_since = now;
  const bool is_refused = finds_nobody && now - peer->refused_since >= kRefusalLimit;
  const bool is_done = status.ok() && peer->connector->done();
  if (is_done) {
    const bool is_it = peer->connector->theirs().rank == static_cast<uint32_t>(rank);
    Descriptor socket = peer->connector->Take();
    peer->connector.reset();
    return is_it ? AddLink(rank, std::move(socket)) : Lose(peer, Internal("another rank answers for it"), now);
  }
  if (status.ok() && !is_refused) return;
  // The rank had the key at the start. It hangs up when many ranks connect at once, as often as it must.
  if (!status.ok() && peer->connector->was_closed_after_proof()) return Connect(rank, peer, now + kTick);
  const std::string why = status.ok() ? peer->connector->last_refusal() : status.message();
  peer->connector.reset();
  if (peer->links.empty()) Lose(peer, {Code::kPeerLost, world_->NameOf(rank), " cannot be reached: ", why}, now);
}

void Messenger::AddLink(int rank, Descriptor socket) {
  Peer& peer = peers_[rank];
  peer.links.push_back(std::make_unique<Link>(rank, std::move(socket), world_->NameOf(rank), &context_));
  for (const TransferPtr& send : std::exchange(peer.unsent, {})) peer.links.front()->Send(send);
}

void Messenger::Pump(Peer* peer, size_t index) {
  Link& link = *peer->links[index];
  if (const Status pumped = link.Pump(); !pumped.ok()) return EndLink(peer, index, pumped);
  if (!link.flushed()) Kick();
}

// Moves what the connections with the rank give and take now; of kAnySource, of all ranks.
void Messenger::PumpAll(int rank) {
  const auto first = rank == kAnySource ? peers_.begin() : peers_.find(rank);
  const auto end = rank == kAnySource || first == peers_.end() ? peers_.end() : std::next(first);
  for (auto each = first; each != end; ++each) {
    for (size_t i = each->second.links.size(); i-- > 0;) Pump(&each->second, i);
  }
}

// Likewise, of the connections that are ready or have something to send.
void Messenger::PumpReady(const PollSet& set) {
  for (auto& [rank, peer] : peers_) {
    for (size_t i = peer.links.size(); i-- > 0;) {
      if (set.ready(peer.links[i]->socket()) || !peer.links[i]->flushed()) Pump(&peer, i);
    }
  }
}

// Wakes the threads that wait for transfers that have ended meanwhile. One of them may sleep on the sockets.
void Messenger::Announce() {
  if (std::exchange(announced_, context_.ended) == context_.ended) return;
  changed_.notify_all();
  if (waiters_ > 0) Kick();
}

// Has a thread that sleeps on the sockets look again which they are. A nap ends soon by itself.
void Messenger::Kick() {
  if (polling_) SignalEvent(wake_.get());
}

// ---- ends

void Messenger::EndLink(Peer* peer, size_t index, const Status& status) {
  const std::vector<TransferPtr> stranded = peer->links[index]->End();
  peer->stranded.insert(peer->stranded.end(), stranded.begin(), stranded.end());
  peer->links.erase(peer->links.begin() + static_cast<std::ptrdiff_t>(index));
  Lose(peer, status, Now());
}

void Messenger::Lose(Peer* peer, const Status& status, TimePoint now) {
  if (peer->lost_since) return;
  peer->lost_since = now;
  peer->lost = status;
}

void Messenger::CheckEnds(TimePoint now) {
  if (!over_.ok()) return;
  if (const Status over = reason_(kAnySource); !over.ok()) return FailAll(over);
  for (auto& [rank, peer] : peers_) {
    if (!peer.lost_since || !peer.failed.ok()) continue;
    const Status why = reason_(rank);
    if (!why.ok() || now - *peer.lost_since >= kConfirmation) FailPeer(rank, &peer, why.ok() ? peer.lost : why);
  }
  if (now < next_look_) return;
  next_look_ = now + kTick;
  FailAbandoned();
}

// Ends the receives from any source that no rank can send any more.
void Messenger::FailAbandoned() {
  const auto is_abandoned = [this](const Transfer& receive) {
    if (receive.peer != kAnySource || world_ == nullptr) return false;
    bool has_others = false;
    for (int i = 0; i < (receive.members ? static_cast<int>(receive.members->size()) : size_); ++i) {
      const int rank = receive.members ? (*receive.members)[static_cast<size_t>(i)] : i;
      if (rank == rank_) continue;
      if (!IsGone(rank)) return false;
      has_others = true;
    }
    return has_others;
  };
  for (const TransferPtr& each : context_.matcher.TakeReceives(is_abandoned))
    context_.Fail(each, {Code::kPeerLost, "all other ranks that could send it have left or died"});
}

// Nothing comes from the rank any more: it has left or died, and what it had sent is received.
bool Messenger::IsGone(int rank) const {
  const auto peer = peers_.find(rank);
  if (peer == peers_.end()) return !reason_(rank).ok();
  return peer->second.links.empty() && (!peer->second.failed.ok() || !reason_(rank).ok());
}

void Messenger::FailPeer(int rank, Peer* peer, const Status& why) {
  peer->failed = why;
  peer->connector.reset();
  std::vector<TransferPtr> all = std::exchange(peer->stranded, {});
  for (const TransferPtr& each : std::exchange(peer->unsent, {})) all.push_back(each);
  while (!peer->links.empty()) {
    for (const TransferPtr& each : peer->links.back()->End()) all.push_back(each);
    peer->links.pop_back();
  }
  for (const TransferPtr& each : context_.matcher.TakeReceives(rank)) all.push_back(each);
  for (const TransferPtr& each : all) context_.Fail(each, why);
}

void Messenger::FailAll(const Status& why) {
  over_ = why;
  for (auto& [rank, peer] : peers_) FailPeer(rank, &peer, why);
  for (const TransferPtr& each : context_.matcher.TakeReceives(kAnySource)) context_.Fail(each, why);
  context_.matcher.DropArrivals([this, &why](Arrival& each) {
    if (each.local) context_.Fail(each.local, why);
    return true;
  });
  changed_.notify_all();
}

void Messenger::Cancel(const TransferPtr& transfer, const Status& why) {
  const Lock lock(mutex_);
  if (transfer->done) return;
  const auto drop = [&transfer](std::vector<TransferPtr>* from) {
    from->erase(std::remove(from->begin(), from->end(), transfer), from->end());
  };
  if (!transfer->sends) context_.matcher.Cancel(transfer);
  context_.matcher.DropArrivals([&transfer](const Arrival& each) { return each.local == transfer; });
  for (auto& [rank, peer] : peers_) {
    drop(&peer.unsent);
    drop(&peer.stranded);
    for (size_t i = peer.links.size(); i-- > 0;) {
      try {
        peer.links[i]->Cancel(transfer);
      } catch (const std::exception&) {  // no memory for a copy of what is being sent
        EndLink(&peer, i, Internal("out of memory"));
        drop(&peer.stranded);
      }
    }
  }
  context_.Complete(transfer, why);
  Kick();  // a link may have something to send
  Announce();
}

// The peers still read what was sent, and then the end. A socket that is closed with unread data would lose it.
void Messenger::Shutdown() {
  std::vector<Descriptor> sockets;
  {
    const Lock lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    for (auto& [rank, peer] : peers_) {
      for (const auto& link : peer.links) {
        sockets.emplace_back(fcntl(link->descriptor(), F_DUPFD_CLOEXEC, 0));
      }
    }
    FailAll({Code::kNotInitialized, "this rank called shutdown"});
    acceptors_.clear();
    Kick();
    background_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  Drain(std::move(sockets));
}

}  // namespace farandole
