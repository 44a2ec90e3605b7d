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

// ---- SharingState

void SharingState::Begin(int round, const std::vector<int>& group, TimePoint now, TimePoint limit) {
  round_ = round;
  if (shared_ && group == group_) return;
  group_ = group;
  absent_ = {group.begin(), group.end()};
  absent_.erase(rank_);
  shared_ = false;
  open_ = true;
  began_ = now;
  limit_ = limit;
}

void SharingState::OnShared() {
  shared_ = true;
  open_ = false;
}

bool SharingState::OnMember(int rank) {
  absent_.erase(rank);
  return absent_.empty();
}

// Once memory is shared, the end of a member's connection has no meaning.
void SharingState::OnMemberGone(int rank) {
  if (open_) absent_.insert(rank);
}

bool SharingState::MayEnter(int rank, int round) const {
  return open_ && leads() && round == round_ && absent_.count(rank) > 0;
}

// ---- LinkingState

void LinkingState::Begin(const Layout& layout, std::vector<std::string> endpoints, TimePoint limit) {
  const std::vector<int> peers = Counterparts(layout, rank_);
  missing_ = {peers.begin(), peers.end()};
  endpoints_ = std::move(endpoints);
  open_ = true;
  limit_ = limit;
}

bool LinkingState::OnLink(int peer) {
  missing_.erase(peer);
  return missing_.empty();
}

std::vector<int> LinkingState::ToOpen() const { return {missing_.begin(), missing_.lower_bound(rank_)}; }

// ---- RendezvousClient

RendezvousClient::RendezvousClient(int rank, PeerInfo mine, TimePoint now, TimePoint deadline)
    : rank_(rank),
      mine_(std::move(mine)),
      began_(now),
      deadline_(deadline),
      margin_(std::min<TimePoint::duration>(kLongestMargin, (deadline - now) / 10)),
      sharing_(rank),
      linking_(rank) {}

void RendezvousClient::Enter(Phase phase) {
  phase_ = phase;
  if (phase != kSharing) sharing_.Close();
  if (phase != kLinking) linking_.Close();
}

void RendezvousClient::OnConnected(TimePoint now) {
  if (phase_ != kConnecting) return;
  connected_at_ = now;
  Enter(kWaiting);
  Say({RendezvousMessage::kPeerInfo, 0, Code::kOk, {}, mine_.Encode(), {}});
}

void RendezvousClient::OnMessage(const RendezvousMessage& message, TimePoint now) {
  if (over()) return;
  switch (message.kind) {
    case RendezvousMessage::kWaiting:
      missing_ = message.ranks;
      return;
    case RendezvousMessage::kLayout:
      return OnLayout(message, now);
    case RendezvousMessage::kLinks:
      return OnLinks(message, now);
    case RendezvousMessage::kGo:
      Enter(kOver);
      return Act(Action::kDone);
    case RendezvousMessage::kGiveUp:
      return Fail({message.code == Code::kOk ? Code::kInternal : message.code, message.text}, message.ranks);
    default:
      return GiveUp(Internal("rank 0 sent an unexpected message while the job started"), {0});
  }
}

void RendezvousClient::OnLayout(const RendezvousMessage& message, TimePoint now) {
  missing_.clear();
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
  Enter(kSharing);
  sharing_.Begin(message.round, group, now, now + patience + (group.front() == rank_ ? patience * 0 : patience / 5));
  if (layout_.group_count() > 1 && data_endpoint_.empty()) Act(Action::kListen);
  if (sharing_.shared()) return Report({}, data_endpoint_);
  Act(Action::kShare);
}

// The outcome carries the data endpoint, so it waits until memory is shared and this rank listens for data.
void RendezvousClient::OnListening(const Status& status, const std::string& endpoint) {
  if (over()) return;
  if (!status.ok()) return GiveUp({status.code(), NameOfRank(peers_, rank_) + ": " + status.message()}, {rank_});
  data_endpoint_ = endpoint;
  if (sharing_.shared() && phase_ == kSharing) Report({}, data_endpoint_);
}

void RendezvousClient::OnShared() {
  if (!sharing_.open()) return;
  sharing_.OnShared();
  if (layout_.group_count() == 1 || !data_endpoint_.empty()) Report({}, data_endpoint_);
}

void RendezvousClient::OnNotShared(int blamed, const std::string& why) {
  if (sharing_.open()) Report({blamed}, why);
}

void RendezvousClient::Report(std::vector<int> blamed, const std::string& text) {
  Enter(kReported);
  Say({RendezvousMessage::kOutcome, sharing_.round(), Code::kOk, std::move(blamed), text, {}});
}

void RendezvousClient::OnLinks(const RendezvousMessage& message, TimePoint now) {
  if (message.texts.size() != peers_.size()) return GiveUp(Internal("rank 0 sent too few endpoints"), {0});
  missing_.clear();
  // A third of the remaining time is left for the question which ranks are missing. Ranks that started earlier ask
  // earlier.
  const auto patience = std::min<TimePoint::duration>((deadline_ - now) * 2 / 3, deadline_ - 2 * margin_ - now);
  Enter(kLinking);
  linking_.Begin(layout_, message.texts, now + std::max<TimePoint::duration>(patience, margin_ / 2));
  Act(Action::kLink);
}

// Ignores a link after a failure or in another phase.
void RendezvousClient::OnLink(int peer) {
  if (!linking_.open() || !linking_.OnLink(peer)) return;
  Enter(kReported);
  Say({RendezvousMessage::kReady, sharing_.round(), Code::kOk, {}, "", {}});
}

void RendezvousClient::OnNoLink(int peer, const std::string& why) {
  if (!linking_.open()) return;
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
  if (linking_.open()) return std::min(linking_.limit(), deadline_);
  if (sharing_.open()) return std::min(sharing_.limit(), deadline_);
  return phase_ == kConnecting || asked_ ? deadline_ : deadline_ - margin_;
}

// When an attempt to share memory is late, the rank reports that and the start goes on. A leader names the absent
// members. A member names only itself, since it cannot know for which other rank the leader waits.
void RendezvousClient::OnTime(TimePoint now, const std::string& detail) {
  if (over() || now < next()) return;
  if (now >= deadline_ || linking_.open()) return OnDeadline(now, detail);
  if (sharing_.open()) {
    std::vector<int> blamed = sharing_.leads() ? sharing_.Absent() : std::vector<int>();
    if (blamed.empty()) blamed = {rank_};
    const std::string waited = "no shared memory after " + Seconds(sharing_.began(), now);
    return Report(std::move(blamed), waited + (detail.empty() ? "" : ": " + detail));
  }
  asked_ = true;
  Say({RendezvousMessage::kGiveUp, sharing_.round(), Code::kDeadline, {}, Seconds(began_, now), {}});
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
  if (linking_.open()) {
    return GiveUp({Code::kDeadline, me + "for a data connection with " + NamesOfRanks(peers_, linking_.Missing()) +
                                        " before the start timeout (FARANDOLE_START_TIMEOUT)" + ending},
                  linking_.Missing());
  }
  // Rank 0 had too little time to answer, so it is not to blame.
  if (now - connected_at_ < margin_ / 2) {
    return GiveUp(
        {Code::kDeadline,
         NameOfRank(peers_, rank_) + " reached rank 0 too shortly before its start timeout (FARANDOLE_START_TIMEOUT)"},
        {rank_});
  }
  const std::string said =
      missing_.empty() ? "" : "; its last report was that it waits for " + NamesOfRanks(peers_, missing_);
  GiveUp(
      {Code::kDeadline, me + "for the others, and " + NameOfRank(peers_, 0) +
                            " did not answer who is missing before the start timeout (FARANDOLE_START_TIMEOUT)" + said},
      {0});
}

void RendezvousClient::Interrupt() {
  if (!over()) GiveUp({Code::kDeadline, NameOfRank(peers_, rank_) + " was interrupted while the job started"}, {rank_});
}

void RendezvousClient::GiveUp(Status why, std::vector<int> culprits) {
  Say({RendezvousMessage::kGiveUp, sharing_.round(), why.code(), culprits, why.message(), {}});
  Fail(std::move(why), std::move(culprits));
}

void RendezvousClient::Fail(Status why, std::vector<int> culprits) {
  Enter(kOver);
  status_ = std::move(why);
  culprits_ = std::move(culprits);
  Act(Action::kFail);
}

}  // namespace farandole
