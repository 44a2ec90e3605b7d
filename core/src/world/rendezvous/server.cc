#include "world/rendezvous/server.h"

#include <algorithm>

#include "transport/socket.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstWarning{10'000};
constexpr milliseconds kWarnAgain{60'000};

}  // namespace

RendezvousServer::RendezvousServer(int size, std::string endpoint, TimePoint now, TimePoint deadline)
    : size_(size),
      endpoint_(std::move(endpoint)),
      deadline_(deadline),
      warn_at_(now + kFirstWarning),
      began_(now),
      connected_(static_cast<size_t>(size), false),
      reported_(static_cast<size_t>(size), false),
      unshared_(static_cast<size_t>(size), false),
      peers_(static_cast<size_t>(size)),
      outcomes_(static_cast<size_t>(size)) {
  for (PeerInfo& peer_info : peers_) peer_info.version.clear();
  connected_[0] = true;
}

// Admits each rank once. A later process with the same rank is refused, and the first one stays.
Status RendezvousServer::Admit(int rank) {
  if (rank < 1 || rank >= size_) {
    return Invalid("rank " + std::to_string(rank) + " does not belong to a job of " + std::to_string(size_) + " ranks");
  }
  const auto at = static_cast<size_t>(rank);
  if (connected_[at])
    return Invalid(NameOfRank(peers_, rank) + " has connected already; there are two processes started with one rank");
  if (over()) return {Code::kPeerLost, "the job is not starting any more"};
  connected_[at] = true;
  return Status::Ok();
}

// A message that does not fit the phase ends the start, since its sender follows another protocol. Only an outcome of
// an earlier round is ignored, since its rank may have sent it before the next LAYOUT arrived.
void RendezvousServer::OnMessage(int rank, const RendezvousMessage& message) {
  if (over()) return;
  if (message.kind == RendezvousMessage::kGiveUp) {
    // A rank that names no culprits asks for them, since this server knows which ranks are missing.
    if (message.ranks.empty()) return GiveUpWaiting(rank, message.text);
    GiveUp({message.code, message.text}, message.ranks);
  } else if (message.kind == RendezvousMessage::kPeerInfo && phase_ == kPeers) {
    OnPeerInfo(rank, message);
  } else if (message.kind == RendezvousMessage::kOutcome && phase_ != kPeers && message.round <= round_) {
    if (message.round == round_ && phase_ == kSharing) OnOutcome(rank, message);
  } else if (message.kind == RendezvousMessage::kReady && phase_ == kLinking) {
    reported_[static_cast<size_t>(rank)] = true;
    if (Missing().empty()) {
      ToAll({RendezvousMessage::kGo, round_, Code::kOk, {}, "", {}});
      phase_ = kOver;
    }
  } else {
    GiveUp(Internal(NameOfRank(peers_, rank) + " sent an unexpected message while the job started"), {rank});
  }
}

void RendezvousServer::OnPeerInfo(int rank, const RendezvousMessage& message) {
  PeerInfo& peer_info = peers_[static_cast<size_t>(rank)];
  if (const Status read = PeerInfo::Decode(message.text, &peer_info); !read.ok()) return GiveUp(read, {rank});
  reported_[static_cast<size_t>(rank)] = true;
  // A rank that was started for another number of ranks ends the start at once, since some ranks will never come.
  const bool other_size = peer_info.version == PeerInfo::CoreVersion() && peer_info.size != size_;
  if (!other_size && !Missing().empty()) return;
  std::vector<int> odd;
  if (const Status same = CheckPeers(peers_, &odd); !same.ok()) return GiveUp(same, odd);
  BeginRound();
}

void RendezvousServer::BeginRound() {
  layout_ = MakeLayout(peers_, unshared_);
  Enter(kSharing);
  RendezvousMessage message{RendezvousMessage::kLayout, round_, Code::kOk, {}, "", {}};
  for (int r = 0; r < size_; ++r) {
    if (unshared_[static_cast<size_t>(r)]) message.ranks.push_back(r);
    if (round_ == 0) message.texts.push_back(peers_[static_cast<size_t>(r)].Encode());
  }
  ToAll(message);
}

void RendezvousServer::OnOutcome(int rank, const RendezvousMessage& message) {
  outcomes_[static_cast<size_t>(rank)] = message;
  reported_[static_cast<size_t>(rank)] = true;
  for (const auto& group : layout_.groups) {
    // One failure decides for its group without the other reports.
    const bool decided =
        std::all_of(group.begin(), group.end(), [&](int r) { return reported_[static_cast<size_t>(r)]; }) ||
        std::any_of(group.begin(), group.end(),
                    [&](int r) { return !outcomes_[static_cast<size_t>(r)].ranks.empty(); });
    if (!decided) return;
  }
  EndRound();
}

// Decides what follows a round: another round, the links, or the end of the start.
void RendezvousServer::EndRound() {
  bool all_shared = true;
  for (const auto& group : layout_.groups) {
    const auto failed = std::find_if(group.begin(), group.end(),
                                     [&](int r) { return !outcomes_[static_cast<size_t>(r)].ranks.empty(); });
    if (failed == group.end()) continue;
    const std::string& why = outcomes_[static_cast<size_t>(*failed)].text;
    // A rank alone in its group shares with no other rank, so its failure ends the start.
    if (group.size() == 1) return GiveUp(Internal(NameOfRank(peers_, *failed) + ": " + why), {*failed});
    all_shared = false;
    notes_.push_back(NamesOfRanks(peers_, outcomes_[static_cast<size_t>(*failed)].ranks) +
                     " cannot share memory, tcp is used: " + why);
    MarkUnshared(group);
  }
  if (!all_shared) {
    ++round_;
    BeginRound();
  } else if (layout_.group_count() > 1) {
    BeginLinking();
  } else {
    ToAll({RendezvousMessage::kGo, round_, Code::kOk, {}, "", {}});
    phase_ = kOver;
  }
}

void RendezvousServer::MarkUnshared(const std::vector<int>& group) {
  for (int r : group) {
    if (round_ > 0) unshared_[static_cast<size_t>(r)] = true;
    for (int blamed : outcomes_[static_cast<size_t>(r)].ranks) {
      if (std::find(group.begin(), group.end(), blamed) != group.end()) unshared_[static_cast<size_t>(blamed)] = true;
    }
  }
}

void RendezvousServer::BeginLinking() {
  RendezvousMessage message{RendezvousMessage::kLinks, round_, Code::kOk, {}, "", {}};
  for (const RendezvousMessage& outcome : outcomes_) message.texts.push_back(outcome.text);
  Enter(kLinking);
  ToAll(message);
}

void RendezvousServer::Enter(Phase phase) {
  phase_ = phase;
  reported_.assign(reported_.size(), false);
  outcomes_.assign(outcomes_.size(), {});
}

void RendezvousServer::OnLost(int rank, const std::string& how) {
  if (over()) return;
  GiveUp({Code::kPeerLost, NameOfRank(peers_, rank) + " " + how + " while the job started"}, {rank});
}

void RendezvousServer::OnTime(TimePoint now) {
  if (over()) return;
  if (now >= deadline_) return GiveUpWaiting(0, std::to_string(MillisecondsBetween(began_, now) / 1000) + " s");
  if (now >= warn_at_) {
    notes_.push_back("rank 0 has waited " + std::to_string(MillisecondsBetween(began_, now) / 1000) + " s for " +
                     NamesOfRanks(peers_, Missing()) + AtEndpoint(endpoint_) +
                     "; look at the output there: it may have ended, or not called init(). The job gives up after " +
                     std::to_string(MillisecondsBetween(began_, deadline_) / 1000) + " s (FARANDOLE_START_TIMEOUT)");
    warn_at_ = now + kWarnAgain;
  }
}

TimePoint RendezvousServer::next() const { return over() ? TimePoint::max() : std::min(deadline_, warn_at_); }

void RendezvousServer::GiveUpWaiting(int rank, const std::string& how_long) {
  std::vector<int> odd;
  if (const Status same = CheckPeers(peers_, &odd); !same.ok()) return GiveUp(same, odd);
  static constexpr const char* kNotYet[] = {"did not come", "did not share memory with the ranks of their machine",
                                            "did not get a data connection to every other group", ""};
  const std::vector<int> missing = Missing();
  std::string text = NameOfRank(peers_, rank) + " waited " + how_long + " for " + NamesOfRanks(peers_, missing) +
                     " of " + std::to_string(size_) + AtEndpoint(endpoint_) + ": they " + kNotYet[phase_] +
                     " before the start timeout (FARANDOLE_START_TIMEOUT)";
  if (phase_ == kPeers && !turned_away_.empty()) {
    text += "; connections were turned away, the last because " + turned_away_;
  }
  GiveUp({Code::kDeadline, text}, missing);
}

void RendezvousServer::GiveUp(Status why, std::vector<int> culprits) {
  ToAll({RendezvousMessage::kGiveUp, round_, why.code(), std::move(culprits), why.message(), {}});
  phase_ = kOver;
}

std::vector<int> RendezvousServer::Missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (!reported_[static_cast<size_t>(r)]) ranks.push_back(r);
  }
  return ranks;
}

// Sends to all ranks that have connected so far.
void RendezvousServer::ToAll(const RendezvousMessage& message) {
  for (int r = 0; r < size_; ++r) {
    if (connected_[static_cast<size_t>(r)]) outgoing_.push_back({r, message});
  }
}

}  // namespace farandole
