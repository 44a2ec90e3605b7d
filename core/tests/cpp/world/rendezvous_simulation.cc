#include "world/rendezvous_simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace farandole {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

}  // namespace

RendezvousSimulation::RendezvousSimulation(uint64_t seed, Planted planted) : planted_(planted), random_(seed) {
  now_ = TimePoint(std::chrono::hours(1));
  Plan();
}

RendezvousSimulation::RendezvousSimulation(int hosts, int ranks_each)
    : planted_(Planted::kNothing), random_(1), size_(hosts * ranks_each), has_strangers_(false) {
  now_ = TimePoint(std::chrono::hours(1));
  max_events_ = std::numeric_limits<int64_t>::max();
  ranks_.resize(static_cast<size_t>(size_));
  peers_.resize(static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) AddRank(r, "host" + std::to_string(r / ranks_each), std::chrono::seconds(60));
  PlanStarts();
}

void RendezvousSimulation::AddRank(int r, const std::string& host, TimePoint::duration patience) {
  Rank& each = rank(r);
  each.start = now_ + milliseconds(random_() % 400);
  each.deadline = each.start + patience;
  PeerInfo& peer_info = peers_[static_cast<size_t>(r)];
  peer_info.host = peer_info.machine = host;
  peer_info.pid = 1000 + r;
  peer_info.shares_memory = true;
  peer_info.size = size_;
  peer_info.settings = {{"FARANDOLE_ORDER", "fixed"}};
}

// Most runs have one or two troubles, some none. Many at once would hide the effect of each.
void RendezvousSimulation::Plan() {
  size_ = 2 + static_cast<int>(random_() % 6);
  ranks_.resize(static_cast<size_t>(size_));
  peers_.resize(static_cast<size_t>(size_));
  percent_slow_ = Chance(30) ? 20 : 0;
  const milliseconds patience(Chance(50) ? 3'000 : 40'000);
  const int machines = 1 + static_cast<int>(random_() % 3);
  for (int r = 0; r < size_; ++r) {
    AddRank(r, "host" + std::to_string(random_() % static_cast<uint64_t>(machines)), patience);
    peers_[static_cast<size_t>(r)].shares_memory = !Chance(10);
  }
  PlanTroubles(patience);
  PlanStarts();
}

void RendezvousSimulation::PlanTroubles(TimePoint::duration patience) {
  const auto somebody = [&]() -> Rank& { return rank(static_cast<int>(random_() % static_cast<uint64_t>(size_))); };
  for (int trouble = static_cast<int>(random_() % 3); trouble > 0; --trouble) {
    Rank& victim = somebody();
    switch (random_() % 12) {
      case 0:
        victim.dies_at_step = static_cast<int>(random_() % 25);
        break;
      case 1:
        victim.dies_at_step = static_cast<int>(random_() % 8);
        break;
      case 2:
        victim.start += patience * 2;
        victim.deadline = victim.start + patience;
        break;
      case 3: {
        const TimePoint until = Chance(50) ? TimePoint::max() : now_ + milliseconds(random_() % 1500);
        At(victim.start + microseconds(random_() % 30'000), -1,
           [&victim, until] { victim.paused_until = std::max(victim.paused_until, until); });
        break;
      }
      case 4:
        victim.cannot_make_segment = true;
        break;
      case 5:
        victim.cannot_reach_leader = true;
        break;
      case 6:
        victim.cannot_attach = true;
        break;
      case 7:
        victim.cannot_listen = true;
        break;
      case 8: {
        const int a = static_cast<int>(random_() % static_cast<uint64_t>(size_));
        const int b = static_cast<int>(random_() % static_cast<uint64_t>(size_));
        if (a != b) blocked_.insert({std::min(a, b), std::max(a, b)});
        break;
      }
      case 9:
        rank(0).dies_at_message = static_cast<int>(random_() % static_cast<uint64_t>(4 * size_));
        break;
      case 10:
        victim.dies_at = victim.start + microseconds(random_() % 30'000);
        break;
      default:
        // Only one of three or more ranks differs, since with two values either could be the odd one.
        victim.other_setting = size_ > 2 && std::none_of(ranks_.begin(), ranks_.end(),
                                                         [](const Rank& each) { return each.other_setting; });
        break;
    }
  }
}

void RendezvousSimulation::PlanStarts() {
  for (int r = 0; r < size_; ++r) {
    if (rank(r).other_setting) peers_[static_cast<size_t>(r)].settings[0].second = "any" + std::to_string(r);
    if (rank(r).cannot_listen) peers_[static_cast<size_t>(r)].listening_error = "no port";
    At(rank(r).start, r, [this, r] { StartRank(r); });
    if (rank(r).dies_at < TimePoint::max()) At(rank(r).dies_at, r, [this, r] { Die(r); });
  }
}

void RendezvousSimulation::At(TimePoint time, int r, std::function<void()> happen) {
  events_.push({std::max(time, now_), order_++, r, std::move(happen)});
}

TimePoint::duration RendezvousSimulation::Delay() {
  return microseconds(100 + random_() % 3'000) +
         (Chance(percent_slow_) ? milliseconds(random_() % 60) : milliseconds(0));
}

// Messages of one connection keep their order.
TimePoint RendezvousSimulation::Arrival(int from, int to) {
  TimePoint& last = last_arrival_[{from, to}];
  last = std::max(last, now_ + Delay());
  return last;
}

void RendezvousSimulation::Run() {
  for (int64_t count = 0; count < max_events_ && !events_.empty(); ++count) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (event.rank < 0) {
      event.happen();
      continue;
    }
    Rank& each = rank(event.rank);
    if (each.dead || Stopped(each)) continue;
    if (each.paused_until > now_) {
      events_.push({each.paused_until, event.order, event.rank, event.happen});
      continue;
    }
    const bool running = !each.client || !each.client->over();
    if (running && each.steps++ == each.dies_at_step) {
      Die(event.rank);
      continue;
    }
    event.happen();
    if (!each.dead) After(event.rank);
  }
}

void RendezvousSimulation::StartRank(int r) {
  Rank& each = rank(r);
  each.client = std::make_unique<RendezvousClient>(r, peers_[static_cast<size_t>(r)], now_, each.deadline);
  if (r != 0) return Connect(r);
  server_ = std::make_unique<RendezvousServer>(size_, "the rendezvous endpoint", now_, each.deadline);
  each.connected = true;
  each.client->OnConnected(now_);
  for (int strangers = has_strangers_ ? static_cast<int>(random_() % 3) : 0; strangers > 0; --strangers) {
    At(now_ + milliseconds(random_() % 500), 0, [this] { server_->OnTurnedAway("it does not speak our protocol"); });
  }
}

void RendezvousSimulation::Connect(int r) {
  if (rank(r).client->over()) return;
  if (!listens() || rank(0).paused_until > now_) return At(now_ + milliseconds(50), r, [this, r] { Connect(r); });
  At(now_ + Delay(), 0, [this, r] {
    Rank& each = rank(r);
    if (each.dead || each.client->over()) return;
    if (!server_->Admit(r).ok()) return At(now_ + milliseconds(50), r, [this, r] { Connect(r); });
    each.connected = true;
    At(Arrival(0, r), r, [this, r] { rank(r).client->OnConnected(now_); });
    // A second process with the same rank, or a rank that does not exist. Both are refused.
    if (!has_strangers_ || !Chance(10)) return;
    if (server_->Admit(Chance(50) ? r : size_ + 3).ok()) std::abort();
    if (planted_ != Planted::kSkippedValidation) return;
    server_->OnMessage(r, {RendezvousMessage::kReady}, now_);
  });
}

void RendezvousSimulation::Die(int r) {
  rank(r).dead = true;
  LoseControl(r);
  ShowEnd(r);
}

// The end of a process ends its connections, behind its last messages.
void RendezvousSimulation::LoseControl(int r) {
  if (r != 0) {
    if (rank(r).connected) At(Arrival(r, 0), 0, [this, r] { server_->OnLost(r, "died"); });
    return;
  }
  for (int other = 1; other < size_; ++other) {
    if (!rank(other).connected) continue;
    At(Arrival(0, other), other, [this, other] { rank(other).client->OnServerLost("died"); });
  }
}

// Performs the actions that an event causes on its rank.
void RendezvousSimulation::After(int r) {
  Rank& each = rank(r);
  const bool was_over = each.over_at != TimePoint();
  for (bool again = true; again;) {
    again = false;
    if (r == 0 && server_) {
      for (const AddressedMessage& addressed : server_->TakeOutgoing()) {
        if (each.messages++ == each.dies_at_message) return Die(0);
        Deliver(addressed);
        again = true;
      }
    }
    if (!each.client) return;
    for (const RendezvousClient::Action& action : each.client->TakeActions()) {
      Perform(r, action);
      again = true;
    }
  }
  if (each.client->over() && !was_over) {
    each.over_at = now_;
    if (!each.done) {
      LoseControl(r);
      EndLater(r, each.client->culprits().empty() ? r : each.client->culprits()[0]);
    }
  }
  SetTimer(r);
}

void RendezvousSimulation::SetTimer(int r) {
  Rank& each = rank(r);
  TimePoint next = each.client->next();
  if (r == 0) next = std::min(next, server_->next());
  if (next == TimePoint::max() || next == each.timer) return;
  each.timer = next;
  At(next, r, [this, r] {
    rank(r).timer = {};
    if (r == 0) server_->OnTime(now_);
    if (r == 0) After(0);
    rank(r).client->OnTime(now_, "");
  });
}

void RendezvousSimulation::Deliver(const AddressedMessage& addressed) {
  RendezvousMessage message = addressed.message;
  const int r = addressed.rank;
  if (planted_ == Planted::kDroppedRank && message.kind == RendezvousMessage::kPeers && r == size_ - 1)
    message.peers[0].shares_memory = true;
  if (planted_ == Planted::kSwappedOrder && message.kind == RendezvousMessage::kPeers && r == size_ - 1)
    message.kind = RendezvousMessage::kGo;
  if (r == 0) return Tell(0, message);
  // Encodes and decodes the message.
  RendezvousMessage read;
  if (!RendezvousMessage::Decode(message.Encode(), &read).ok()) std::abort();
  Count(0, r, message);
  At(Arrival(0, r), r, [this, r, read] { Tell(r, read); });
}

void RendezvousSimulation::Count(int from, int to, const RendezvousMessage& message) {
  const size_t size_bytes = message.Encode().size();
  ++rank(from).traffic.sent_messages;
  ++rank(to).traffic.received_messages;
  rank(from).traffic.sent_bytes += size_bytes;
  rank(to).traffic.received_bytes += size_bytes;
}

void RendezvousSimulation::Tell(int r, const RendezvousMessage& message) { rank(r).client->OnMessage(message, now_); }

void RendezvousSimulation::Perform(int r, const RendezvousClient::Action& action) {
  switch (action.kind) {
    case RendezvousClient::Action::kSend: {
      const RendezvousMessage message = action.message;
      if (r == 0) return server_->OnMessage(0, message, now_);
      Count(r, 0, message);
      return At(Arrival(r, 0), 0, [this, r, message] { server_->OnMessage(r, message, now_); });
    }
    case RendezvousClient::Action::kSetUp:
      Share(r);
      return Link(r);
    case RendezvousClient::Action::kHandOut:
      return HandOut(r);
    case RendezvousClient::Action::kDone:
      rank(r).done = true;
      return At(now_ + Delay(), r, [this, r] { Look(r); });
    case RendezvousClient::Action::kFail:
      return;
  }
}

void RendezvousSimulation::Share(int r) {
  Rank& each = rank(r);
  RendezvousClient& client = *each.client;
  if (client.leader() != r) return Come(r, client.leader());
  // A rank alone needs little memory, so it succeeds.
  if (each.cannot_make_segment && client.node().size() > 1) return client.OnNotShared("no memory");
  each.segment = next_segment_++;
  if (client.node().size() == 1) return client.OnShared();
  for (int member : std::exchange(each.come, {})) client.OnMember(member);
}

// The member waits where the leader does not know its node yet.
void RendezvousSimulation::Come(int r, int leader) {
  if (rank(r).cannot_reach_leader) return;
  At(now_ + Delay(), leader, [this, r, leader] {
    Rank& host = rank(leader);
    if (host.client->over() || rank(r).dead) return;
    if (host.segment == 0) {
      host.come.insert(r);
    } else {
      host.client->OnMember(r);
    }
  });
}

void RendezvousSimulation::HandOut(int r) {
  Rank& host = rank(r);
  for (int member : host.client->node()) {
    if (member == r) continue;
    At(now_ + Delay(), member, [this, member, segment = host.segment] {
      Rank& each = rank(member);
      if (each.client->over()) return;
      if (each.cannot_attach) return each.client->OnNotShared("no address space");
      each.segment = segment;
      each.client->OnShared();
    });
  }
  host.client->OnShared();
}

void RendezvousSimulation::Link(int r) {
  for (int peer : std::exchange(rank(r).waiting, {})) LetIn(r, peer);
  for (int peer : rank(r).client->ToOpen()) Reach(r, peer);
}

void RendezvousSimulation::Reach(int r, int peer) {
  At(now_ + Delay(), peer, [this, r, peer] {
    if (rank(r).dead || !rank(r).client || rank(r).client->over()) return;
    if (Blocked(r, peer) || rank(peer).client->over()) {
      return At(now_ + milliseconds(100), r, [this, r, peer] { Reach(r, peer); });
    }
    LetIn(peer, r);
    At(now_ + Delay(), r, [this, r, peer] {
      rank(r).linked.insert(peer);
      rank(r).client->OnLink(peer);
    });
  });
}

// The peer waits where this rank does not know yet that it may link.
void RendezvousSimulation::LetIn(int r, int peer) {
  Rank& each = rank(r);
  if (!each.client->MayLink(peer)) {
    each.waiting.insert(peer);
    return;
  }
  each.linked.insert(peer);
  each.client->OnLink(peer);
}

std::string RendezvousSimulation::Story() const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    const Rank& each = ranks_[static_cast<size_t>(r)];
    const bool over = each.client && each.client->over();
    const bool paused = each.paused_until != TimePoint();
    const std::string end = each.dead   ? "died"
                            : each.done ? "ready"
                            : over      ? "failed: " + each.client->status().message()
                                        : "waits";
    text += "\n  rank " + std::to_string(r) + (paused ? " (stopped)" : "") + " after " +
            std::to_string(MillisecondsBetween(each.start, each.over_at)) + " ms " + end;
  }
  return text;
}

}  // namespace farandole
