#include "world/rendezvous/client.h"

#include <algorithm>

namespace farandole {
namespace {

// "2.5 s"
std::string Seconds(TimePoint from, TimePoint to) {
  const int64_t tenths = MillisecondsBetween(from, to) / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

RendezvousClient::RendezvousClient(int rank, PeerInfo mine, TimePoint now, TimePoint deadline)
    : rank_(rank), mine_(std::move(mine)), began_(now), deadline_(deadline) {}

void RendezvousClient::OnConnected(TimePoint now) {
  if (phase_ != kConnecting) return;
  phase_ = kWaiting;
  Say({RendezvousMessage::kPeerInfo, Code::kOk, mine_.Encode(), {}, MillisecondsBetween(now, deadline_), {}});
}

void RendezvousClient::OnMessage(const RendezvousMessage& message, TimePoint now) {
  if (over()) return;
  if (message.kind == RendezvousMessage::kGiveUp) {
    Fail({message.code == Code::kOk ? Code::kInternal : message.code, message.text}, message.ranks);
  } else if (message.kind == RendezvousMessage::kPeers && phase_ == kWaiting) {
    OnPeers(message, now);
  } else if (message.kind == RendezvousMessage::kGo && phase_ == kReady) {
    phase_ = kOver;
    Act(Action::kDone);
  } else {
    GiveUp(Internal("rank 0 sent an unexpected message while the job started"), {0});
  }
}

void RendezvousClient::OnPeers(const RendezvousMessage& message, TimePoint now) {
  if (static_cast<size_t>(rank_) >= message.peers.size()) return GiveUp(Internal("rank 0 sent too few peers"), {0});
  peers_ = message.peers;
  layout_ = MakeLayout(peers_);
  node_ = layout_.nodes[static_cast<size_t>(layout_.node_of[static_cast<size_t>(rank_)])];
  if (leader() == rank_) absent_ = {node_.begin() + 1, node_.end()};
  const std::vector<int> peers = InterNodePeers(layout_, rank_);
  unlinked_ = {peers.begin(), peers.end()};
  const std::chrono::milliseconds left(message.left_ms);
  first_limit_ = now + left * 2 / 3;
  last_limit_ = now + left * 5 / 6;
  phase_ = kSettingUp;
  Act(Action::kSetUp);
}

void RendezvousClient::OnMember(int rank) {
  if (phase_ != kSettingUp) return;
  absent_.erase(rank);
  if (absent_.empty()) Act(Action::kHandOut);
}

void RendezvousClient::OnShared() {
  shared_ = true;
  ReportWhenSetUp();
}

void RendezvousClient::OnLink(int peer) {
  unlinked_.erase(peer);
  ReportWhenSetUp();
}

void RendezvousClient::ReportWhenSetUp() {
  if (phase_ != kSettingUp || !shared_ || !unlinked_.empty()) return;
  phase_ = kReady;
  Say({RendezvousMessage::kReady});
}

void RendezvousClient::OnNotShared(const std::string& why) {
  if (phase_ != kSettingUp) return;
  const bool is_alone = node_.size() == 1;
  GiveUp(Internal(NameOfRank(peers_, rank_), is_alone ? ": " : " cannot share memory with the ranks of its machine: ",
                  why, is_alone ? "" : "; with FARANDOLE_ARENAS=0 it uses tcp instead"),
         {rank_});
}

void RendezvousClient::OnListenerLost(const std::string& why) {
  if (over() || phase_ == kConnecting) return;  // nobody knows the endpoint before the PEER_INFO
  GiveUp(Internal("rank ", rank_, " cannot take connections of other ranks: ", why), {rank_});
}

void RendezvousClient::OnNoLink(int peer, const std::string& why) {
  if (phase_ != kSettingUp) return;
  const std::string name = NameOfRank(peers_, peer);
  GiveUp({Code::kPeerLost, NameOfRank(peers_, rank_) + " cannot open a data connection to " + name + ": " + why},
         {peer});
}

// While this rank still connects, its Connector retries, so the loss of one connection is ignored.
void RendezvousClient::OnServerLost(const std::string& how) {
  if (over() || phase_ == kConnecting) return;
  Fail({Code::kPeerLost, NameOfRank(peers_, 0) + " " + how + " while the job started"}, {0});
}

TimePoint RendezvousClient::next() const {
  if (over()) return TimePoint::max();
  if (phase_ != kSettingUp) return deadline_;
  return std::min(knows_whom_it_misses() ? first_limit_ : last_limit_, deadline_);
}

void RendezvousClient::OnTime(TimePoint now, const std::string& detail) {
  if (over() || now < next()) return;
  if (phase_ == kSettingUp) return OnLimit(now, detail);
  OnDeadline(now, detail);
}

std::string RendezvousClient::Waited(TimePoint now) const {
  return NameOfRank(peers_, rank_) + " waited " + Seconds(began_, now);
}

void RendezvousClient::OnLimit(TimePoint now, const std::string& detail) {
  const bool is_linked = unlinked_.empty();
  std::vector<int> missing(unlinked_.begin(), unlinked_.end());
  if (is_linked && leader() == rank_) missing.assign(absent_.begin(), absent_.end());
  if (is_linked && leader() != rank_) missing = {leader()};
  GiveUp({Code::kDeadline, Waited(now) + (is_linked ? " to share memory with " : " for a data connection with ") +
                               NamesOfRanks(peers_, missing) + " before the start timeout (FARANDOLE_START_TIMEOUT)" +
                               (detail.empty() ? "" : "; last: " + detail) +
                               (is_linked ? "; if they run, set FARANDOLE_ARENAS=0 to use TCP" : "")},
         missing);
}

void RendezvousClient::OnDeadline(TimePoint now, const std::string& detail) {
  if (phase_ == kConnecting) {
    return Fail(
        {Code::kDeadline, Waited(now) + " for rank 0: no connection" + (detail.empty() ? "" : "; last: " + detail) +
                              ". Check that rank 0 was started and still runs, and that its address and port "
                              "can be reached from this host"},
        {0});
  }
  GiveUp({Code::kDeadline, Waited(now) + " for the others, and " + NameOfRank(peers_, 0) +
                               " did not say who is missing before the start timeout (FARANDOLE_START_TIMEOUT)"},
         {0});
}

void RendezvousClient::Interrupt() {
  if (!over()) GiveUp({Code::kDeadline, NameOfRank(peers_, rank_) + " was interrupted while the job started"}, {rank_});
}

void RendezvousClient::GiveUp(Status why, std::vector<int> culprits) {
  Say({RendezvousMessage::kGiveUp, why.code(), why.message(), culprits});
  Fail(std::move(why), std::move(culprits));
}

void RendezvousClient::Fail(Status why, std::vector<int> culprits) {
  phase_ = kOver;
  status_ = std::move(why);
  culprits_ = std::move(culprits);
  Act(Action::kFail);
}

}  // namespace farandole
