#include "world/rendezvous/client.h"

#include <algorithm>

namespace farandole {
namespace {

using std::chrono::milliseconds;

// The longest time for an attempt to share memory, so that a stopped leader does not take its members the whole start
// timeout. The leader knows which member is missing, so it reports first, and its members somewhat later.
constexpr milliseconds kSharingPatience{10'000};
// Before the deadline each rank reports what it knows. First it reports which rank did not share memory or cannot be
// reached, which rank 0 cannot know. Then it asks rank 0 which ranks are missing, so that all ranks report the same
// names. kLongestMargin is the time for that question.
constexpr milliseconds kLongestMargin{1'000};

// "2.5 s"
std::string Seconds(TimePoint from, TimePoint to) {
  const int64_t tenths = MillisecondsBetween(from, to) / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

RendezvousClient::RendezvousClient(int rank, PeerInfo mine, TimePoint now, TimePoint deadline)
    : rank_(rank),
      mine_(std::move(mine)),
      began_(now),
      deadline_(deadline),
      margin_(std::min<TimePoint::duration>(kLongestMargin, (deadline - now) / 10)) {}

void RendezvousClient::OnConnected(TimePoint now) {
  if (phase_ != kConnecting) return;
  connected_at_ = now;
  phase_ = kWaiting;
  Say({RendezvousMessage::kPeerInfo, 0, Code::kOk, {}, mine_.Encode(), {}});
}

void RendezvousClient::OnMessage(const RendezvousMessage& message, TimePoint now) {
  if (over()) return;
  switch (message.kind) {
    case RendezvousMessage::kLayout:
      return OnLayout(message, now);
    case RendezvousMessage::kLinks:
      return OnLinks(message, now);
    case RendezvousMessage::kGo:
      phase_ = kOver;
      return Act(Action::kDone);
    case RendezvousMessage::kGiveUp:
      return Fail({message.code == Code::kOk ? Code::kInternal : message.code, message.text}, message.ranks);
    default:
      return GiveUp(Internal("rank 0 sent an unexpected message while the job started"), {0});
  }
}

void RendezvousClient::OnLayout(const RendezvousMessage& message, TimePoint now) {
  // Only round 0 carries the PeerInfos, since they do not change.
  if (message.round == 0) {
    peers_.assign(message.texts.size(), {});
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (const Status read = PeerInfo::Decode(message.texts[r], &peers_[r]); !read.ok()) return GiveUp(read, {0});
    }
  }
  if (static_cast<size_t>(rank_) >= peers_.size()) return GiveUp(Internal("rank 0 sent too few peers"), {0});
  std::vector<bool> unshared(peers_.size(), false);
  for (int r : message.ranks) {
    if (r >= 0 && static_cast<size_t>(r) < unshared.size()) unshared[static_cast<size_t>(r)] = true;
  }
  layout_ = MakeLayout(peers_, unshared);
  const std::vector<int>& group = layout_.groups[static_cast<size_t>(layout_.group_of[static_cast<size_t>(rank_)])];
  // A third of the remaining time, so that a second round and the links over tcp have time, too.
  const auto patience = std::min<TimePoint::duration>(kSharingPatience, (deadline_ - now) / 3);
  phase_ = kSharing;
  round_ = message.round;
  if (!shared_ || group != group_) {  // else it keeps its memory
    group_ = group;
    absent_ = {group.begin(), group.end()};
    absent_.erase(rank_);
    shared_ = false;
    sharing_began_ = now;
    limit_ = now + patience + (leader() == rank_ ? patience * 0 : patience / 5);
  }
  if (layout_.group_count() > 1 && data_endpoint_.empty()) Act(Action::kListen);
  if (shared_) return Report({}, data_endpoint_);
  Act(Action::kShare);
}

// The outcome carries the data endpoint, so it waits until memory is shared and this rank listens for data.
void RendezvousClient::OnListening(const Status& status, const std::string& endpoint) {
  if (over()) return;
  if (!status.ok()) return GiveUp({status.code(), NameOfRank(peers_, rank_) + ": " + status.message()}, {rank_});
  data_endpoint_ = endpoint;
  if (shared_ && phase_ == kSharing) Report({}, data_endpoint_);
}

void RendezvousClient::OnMember(int rank) {
  absent_.erase(rank);
  if (absent_.empty()) Act(Action::kHandOut);
}

void RendezvousClient::OnShared() {
  if (!shares()) return;
  shared_ = true;
  if (layout_.group_count() == 1 || !data_endpoint_.empty()) Report({}, data_endpoint_);
}

void RendezvousClient::OnNotShared(int blamed, const std::string& why) {
  if (shares()) Report({blamed}, why);
}

void RendezvousClient::Report(std::vector<int> blamed, const std::string& text) {
  phase_ = kReported;
  Say({RendezvousMessage::kOutcome, round_, Code::kOk, std::move(blamed), text, {}});
}

void RendezvousClient::OnLinks(const RendezvousMessage& message, TimePoint now) {
  if (message.texts.size() != peers_.size()) return GiveUp(Internal("rank 0 sent too few endpoints"), {0});
  // A third of the remaining time is left for the question which ranks are missing. Ranks that started earlier ask
  // earlier.
  const auto patience = std::min<TimePoint::duration>((deadline_ - now) * 2 / 3, deadline_ - 2 * margin_ - now);
  phase_ = kLinking;
  const std::vector<int> peers = Counterparts(layout_, rank_);
  unlinked_ = {peers.begin(), peers.end()};
  endpoints_ = message.texts;
  limit_ = now + std::max<TimePoint::duration>(patience, margin_ / 2);
  Act(Action::kLink);
}

// Ignores a link after a failure or in another phase.
void RendezvousClient::OnLink(int peer) {
  if (phase_ != kLinking) return;
  unlinked_.erase(peer);
  if (!unlinked_.empty()) return;
  phase_ = kReported;
  Say({RendezvousMessage::kReady, round_, Code::kOk, {}, "", {}});
}

void RendezvousClient::OnNoLink(int peer, const std::string& why) {
  if (phase_ != kLinking) return;
  const std::string name = NameOfRank(peers_, peer);
  GiveUp({Code::kPeerLost, NameOfRank(peers_, rank_) + " cannot open a data connection to " + name + ": " + why},
         {peer});
}

// While this rank still connects, its Connector retries, so the loss of one connection is ignored.
void RendezvousClient::OnServerLost(const std::string& how) {
  if (over() || phase_ == kConnecting) return;
  Fail({Code::kPeerLost, NameOfRank(peers_, 0) + " " + how + " while the job started"}, {0});
}

// The next time limit of the phase. Outside of sharing and linking it is the time to ask rank 0, then the deadline.
TimePoint RendezvousClient::next() const {
  if (over()) return TimePoint::max();
  if (phase_ == kLinking || shares()) return std::min(limit_, deadline_);
  return phase_ == kConnecting || asked_ ? deadline_ : deadline_ - margin_;
}

// When an attempt to share memory is late, the rank reports that and the start goes on. A leader names the absent
// members. A member names only itself, since it cannot know for which other rank the leader waits.
void RendezvousClient::OnTime(TimePoint now, const std::string& detail) {
  if (over() || now < next()) return;
  if (now >= deadline_ || phase_ == kLinking) return OnDeadline(now, detail);
  if (shares()) {
    std::vector<int> blamed = {rank_};
    if (leader() == rank_ && !absent_.empty()) blamed.assign(absent_.begin(), absent_.end());
    const std::string waited = "no shared memory after " + Seconds(sharing_began_, now);
    return Report(std::move(blamed), waited + (detail.empty() ? "" : ": " + detail));
  }
  asked_ = true;
  Say({RendezvousMessage::kGiveUp, round_, Code::kDeadline, {}, Seconds(began_, now), {}});
}

// The start has failed for this rank. The message says what the rank waited for, which depends on its phase.
void RendezvousClient::OnDeadline(TimePoint now, const std::string& detail) {
  const std::string me = NameOfRank(peers_, rank_) + " waited " + Seconds(began_, now) + " ";
  const std::string ending = detail.empty() ? "" : "; last: " + detail;
  if (phase_ == kConnecting) {
    return Fail({Code::kDeadline, me + "for rank 0: nobody to connect to" + ending +
                                      ". Check that rank 0 was started and still runs, and that its address and port "
                                      "can be reached from this host"},
                {0});
  }
  if (phase_ == kLinking) {
    const std::vector<int> missing(unlinked_.begin(), unlinked_.end());
    return GiveUp({Code::kDeadline, me + "for a data connection with " + NamesOfRanks(peers_, missing) +
                                        " before the start timeout (FARANDOLE_START_TIMEOUT)" + ending},
                  missing);
  }
  // Rank 0 had too little time to answer, so it is not to blame.
  if (now - connected_at_ < margin_ / 2) {
    return GiveUp(
        {Code::kDeadline,
         NameOfRank(peers_, rank_) + " reached rank 0 too shortly before its start timeout (FARANDOLE_START_TIMEOUT)"},
        {rank_});
  }
  GiveUp({Code::kDeadline, me + "for the others, and " + NameOfRank(peers_, 0) +
                               " did not answer who is missing before the start timeout (FARANDOLE_START_TIMEOUT)"},
         {0});
}

void RendezvousClient::Interrupt() {
  if (!over()) GiveUp({Code::kDeadline, NameOfRank(peers_, rank_) + " was interrupted while the job started"}, {rank_});
}

void RendezvousClient::GiveUp(Status why, std::vector<int> culprits) {
  Say({RendezvousMessage::kGiveUp, round_, why.code(), culprits, why.message(), {}});
  Fail(std::move(why), std::move(culprits));
}

void RendezvousClient::Fail(Status why, std::vector<int> culprits) {
  phase_ = kOver;
  status_ = std::move(why);
  culprits_ = std::move(culprits);
  Act(Action::kFail);
}

}  // namespace farandole
