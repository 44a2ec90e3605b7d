#include "world/rendezvous/server.h"

#include <algorithm>
#include <map>

#include "transport/socket.h"

namespace farandole {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstWarning{10'000};
constexpr milliseconds kWarnAgain{60'000};
constexpr milliseconds kLongestMargin{1'000};

}  // namespace

RendezvousServer::RendezvousServer(int size, std::string endpoint, TimePoint now, TimePoint deadline)
    : size_(size),
      endpoint_(std::move(endpoint)),
      began_(now),
      own_deadline_(deadline),
      margin_(std::min<TimePoint::duration>(kLongestMargin, (deadline - now) / 10)),
      deadline_(deadline),
      warn_at_(now + kFirstWarning),
      connected_(static_cast<size_t>(size), false),
      reported_(static_cast<size_t>(size), false),
      peers_(static_cast<size_t>(size)) {
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

// A message that does not fit the phase ends the start, since its sender follows another protocol.
void RendezvousServer::OnMessage(int rank, const RendezvousMessage& message, TimePoint now) {
  if (over()) return;
  if (message.kind == RendezvousMessage::kGiveUp) {
    GiveUp({message.code, message.text}, message.ranks);
  } else if (message.kind == RendezvousMessage::kPeerInfo && phase_ == kPeers) {
    OnPeerInfo(rank, message, now);
  } else if (message.kind == RendezvousMessage::kReady && phase_ == kSettingUp) {
    reported_[static_cast<size_t>(rank)] = true;
    if (!Missing().empty()) return;
    ToAll({RendezvousMessage::kGo});
    phase_ = kOver;
  } else {
    GiveUp(Internal(NameOfRank(peers_, rank) + " sent an unexpected message while the job started"), {rank});
  }
}

void RendezvousServer::OnPeerInfo(int rank, const RendezvousMessage& message, TimePoint now) {
  PeerInfo& peer_info = peers_[static_cast<size_t>(rank)];
  if (const Status read = PeerInfo::Decode(message.text, &peer_info); !read.ok()) return GiveUp(read, {rank});
  reported_[static_cast<size_t>(rank)] = true;
  deadline_ = std::min(deadline_, now + milliseconds(message.left_ms));
  // A rank that was started for another number of ranks ends the start at once, since some ranks will never come.
  const bool other_size = peer_info.version == PeerInfo::CoreVersion() && peer_info.size != size_;
  if (!other_size && !Missing().empty()) return;
  std::vector<int> odd;
  if (const Status same = CheckPeers(peers_, &odd); !same.ok()) return GiveUp(same, odd);
  SendPeers(now);
}

// Data connections are needed between nodes only, so a rank that cannot listen for them is an error only there.
void RendezvousServer::SendPeers(TimePoint now) {
  const bool needs_links = MakeLayout(peers_).node_count() > 1;
  for (int r = 0; needs_links && r < size_; ++r) {
    const std::string& why = peers_[static_cast<size_t>(r)].listening_error;
    if (!why.empty()) return GiveUp(Internal(NameOfRank(peers_, r) + ": " + why), {r});
  }
  NoteUnshared();
  phase_ = kSettingUp;
  reported_.assign(reported_.size(), false);
  ToAll({RendezvousMessage::kPeers, Code::kOk, "", {}, MillisecondsBetween(now, limit()), peers_});
}

void RendezvousServer::NoteUnshared() {
  std::map<std::string, std::vector<int>> together, unshared;  // by machine
  for (int r = 0; r < size_; ++r) {
    const PeerInfo& peer_info = peers_[static_cast<size_t>(r)];
    together[peer_info.machine].push_back(r);
    if (!peer_info.sharing_error.empty()) unshared[peer_info.machine].push_back(r);
  }
  for (const auto& [machine, ranks] : unshared) {
    if (together[machine].size() == 1) continue;
    notes_.push_back(NamesOfRanks(peers_, ranks) +
                     " cannot share memory, tcp is used: " + peers_[static_cast<size_t>(ranks[0])].sharing_error);
  }
}

void RendezvousServer::OnLost(int rank, const std::string& how) {
  if (over()) return;
  GiveUp({Code::kPeerLost, NameOfRank(peers_, rank) + " " + how + " while the job started"}, {rank});
}

void RendezvousServer::OnTime(TimePoint now) {
  if (over()) return;
  if (now >= limit()) return GiveUpWaiting(now);
  if (now >= warn_at_) {
    notes_.push_back("rank 0 has waited " + std::to_string(MillisecondsBetween(began_, now) / 1000) + " s for " +
                     NamesOfRanks(peers_, Missing()) + AtEndpoint(endpoint_) +
                     "; look at the output there: it may have ended, or not called init(). The job gives up after " +
                     std::to_string(MillisecondsBetween(began_, own_deadline_) / 1000) +
                     " s (FARANDOLE_START_TIMEOUT)");
    warn_at_ = now + kWarnAgain;
  }
}

TimePoint RendezvousServer::next() const { return over() ? TimePoint::max() : std::min(limit(), warn_at_); }

void RendezvousServer::GiveUpWaiting(TimePoint now) {
  std::vector<int> odd;
  if (const Status same = CheckPeers(peers_, &odd); !same.ok()) return GiveUp(same, odd);
  const std::vector<int> missing = Missing();
  std::string text = NameOfRank(peers_, 0) + " waited " + std::to_string(MillisecondsBetween(began_, now) / 1000) +
                     " s for " + NamesOfRanks(peers_, missing) + " of " + std::to_string(size_) +
                     AtEndpoint(endpoint_) + ": they did not " + (phase_ == kPeers ? "connect" : "become ready") +
                     " before the start timeout (FARANDOLE_START_TIMEOUT)";
  if (phase_ == kPeers && !turned_away_.empty()) {
    text += "; connections were turned away, the last because " + turned_away_;
  }
  GiveUp({Code::kDeadline, text}, missing);
}

void RendezvousServer::GiveUp(Status why, std::vector<int> culprits) {
  ToAll({RendezvousMessage::kGiveUp, why.code(), why.message(), std::move(culprits)});
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
