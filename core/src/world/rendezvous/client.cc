#include "world/rendezvous/client.h"

#include <algorithm>

namespace farandole {
namespace {

using std::chrono::milliseconds;

// A leader that is stopped must not cost its members the whole start timeout. The leader knows who did not come, so it
// speaks first, its members somewhat later.
constexpr milliseconds kMeetingPatience{10'000};
// Before the deadline ranks say, each at its time, what they know: first who did not meet or cannot be reached, which
// only the ranks themselves know; then rank 0 is asked who is missed, so that all hear the same names.
constexpr milliseconds kLongestMargin{1'000};

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

const std::vector<int>& RendezvousClient::group() const {
  return layout_.groups[static_cast<size_t>(layout_.group_of[static_cast<size_t>(rank_)])];
}

void RendezvousClient::OnConnected(TimePoint now) {
  if (phase_ != kComing) return;
  came_to_rank_0_ = now;
  phase_ = kWaiting;
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
      phase_ = kOver;
      return Act(Action::kDone);
    case RendezvousMessage::kGiveUp:
      return Fail({message.code == Code::kOk ? Code::kInternal : message.code, message.text}, message.ranks);
    default:
      return GiveUp(Internal("rank 0 said something out of turn while the job started"), {0});
  }
}

void RendezvousClient::OnLayout(const RendezvousMessage& message, TimePoint now) {
  missing_.clear();
  if (message.round == 0) {
    peers_.assign(message.texts.size(), {});
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (const Status read = PeerInfo::Decode(message.texts[r], &peers_[r]); !read.ok()) return GiveUp(read, {0});
    }
  }
  if (static_cast<size_t>(rank_) >= peers_.size()) return GiveUp(Internal("rank 0 sent too few peers"), {0});
  std::vector<bool> apart(peers_.size(), false);
  for (int r : message.ranks) {
    if (r >= 0 && static_cast<size_t>(r) < apart.size()) apart[static_cast<size_t>(r)] = true;
  }
  const std::vector<int> before = met_ ? group() : std::vector<int>();
  layout_ = MakeLayout(peers_, apart);
  round_ = message.round;
  met_ = met_ && group() == before;
  phase_ = kMeeting;
  if (layout_.group_count() > 1 && data_endpoint_.empty()) Act(Action::kListen);
  if (met_) return TellOutcome();
  came_.assign(peers_.size(), false);
  // A third of the time that is left, so that there is some for a second meeting and for links over tcp.
  const auto patience = std::min<TimePoint::duration>(kMeetingPatience, (deadline_ - now) / 3);
  phase_deadline_ = now + patience + (leader() == rank_ ? patience * 0 : patience / 5);
  meeting_since_ = now;
  Act(Action::kMeet);
}

void RendezvousClient::OnListening(const Status& status, const std::string& endpoint) {
  if (over()) return;
  if (!status.ok()) return GiveUp({status.code(), NameOfRank(peers_, rank_) + ": " + status.message()}, {rank_});
  data_endpoint_ = endpoint;
  if (met_ && phase_ == kMeeting) TellOutcome();
}

bool RendezvousClient::MayEnter(int rank, int round) const {
  if (phase_ != kMeeting || round != round_ || leader() != rank_ || rank == rank_) return false;
  const std::vector<int>& ranks = group();
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end() && !came_[static_cast<size_t>(rank)];
}

void RendezvousClient::OnEntered(int rank) {
  came_[static_cast<size_t>(rank)] = true;
  if (Absent().empty()) Act(Action::kHandOut);
}

void RendezvousClient::OnGone(int rank) {
  if (phase_ == kMeeting && !met_) came_[static_cast<size_t>(rank)] = false;
}

std::vector<int> RendezvousClient::Absent() const {
  std::vector<int> ranks;
  for (int r : group()) {
    if (r != rank_ && !came_[static_cast<size_t>(r)]) ranks.push_back(r);
  }
  return ranks;
}

void RendezvousClient::OnMet() {
  if (phase_ != kMeeting || met_) return;
  met_ = true;
  if (layout_.group_count() == 1 || !data_endpoint_.empty()) TellOutcome();
}

void RendezvousClient::TellOutcome() {
  phase_ = kSettled;
  Say({RendezvousMessage::kOutcome, round_, Code::kOk, {}, data_endpoint_, {}});
}

void RendezvousClient::OnNotMet(int blamed, const std::string& why) { NotMet({blamed}, why); }

void RendezvousClient::NotMet(std::vector<int> blamed, const std::string& why) {
  if (phase_ != kMeeting || met_) return;
  phase_ = kSettled;
  if (blamed.empty()) blamed = {rank_};
  Say({RendezvousMessage::kOutcome, round_, Code::kOk, std::move(blamed), why, {}});
}

void RendezvousClient::OnLinks(const RendezvousMessage& message, TimePoint now) {
  if (message.texts.size() != peers_.size()) return GiveUp(Internal("rank 0 sent too few endpoints"), {0});
  missing_.clear();
  endpoints_ = message.texts;
  linked_.assign(peers_.size(), false);
  phase_ = kLinking;
  // Ranks that came earlier ask rank 0 earlier who is missed: a third of the time that is left is for that.
  const auto patience = std::min<TimePoint::duration>((deadline_ - now) * 2 / 3, deadline_ - 2 * margin_ - now);
  phase_deadline_ = now + std::max<TimePoint::duration>(patience, margin_ / 2);
  Act(Action::kLink);
}

std::vector<int> RendezvousClient::links_to_open() const {
  std::vector<int> ranks;
  for (int peer : Counterparts(layout_, rank_)) {
    if (peer < rank_) ranks.push_back(peer);
  }
  return ranks;
}

bool RendezvousClient::MayLink(int rank) const {
  if (phase_ != kLinking || rank <= rank_ || rank >= layout_.size()) return false;
  const auto at = static_cast<size_t>(rank);
  return layout_.group_of[at] != layout_.group_of[static_cast<size_t>(rank_)] && !linked_[at];
}

void RendezvousClient::OnLink(int peer) {
  if (phase_ != kLinking) return;
  linked_[static_cast<size_t>(peer)] = true;
  if (!Unlinked().empty()) return;
  phase_ = kSettled;
  Say({RendezvousMessage::kReady, round_, Code::kOk, {}, "", {}});
}

void RendezvousClient::OnNoLink(int peer, const std::string& why) {
  if (phase_ != kLinking) return;
  const std::string name = NameOfRank(peers_, peer);
  GiveUp({Code::kPeerLost, NameOfRank(peers_, rank_) + " cannot open a data connection to " + name + ": " + why},
         {peer});
}

std::vector<int> RendezvousClient::Unlinked() const {
  std::vector<int> ranks;
  for (int peer : Counterparts(layout_, rank_)) {
    if (!linked_[static_cast<size_t>(peer)]) ranks.push_back(peer);
  }
  return ranks;
}

void RendezvousClient::OnServerLost(const std::string& how) {
  if (over() || phase_ == kComing) return;
  Fail({Code::kPeerLost, NameOfRank(peers_, 0) + " " + how + " while the job started"}, {0});
}

TimePoint RendezvousClient::next() const {
  if (over()) return TimePoint::max();
  if (phase_ == kLinking || (phase_ == kMeeting && !met_)) return std::min(phase_deadline_, deadline_);
  return phase_ == kComing || asked_ ? deadline_ : deadline_ - margin_;
}

void RendezvousClient::OnTime(TimePoint now, const std::string& detail) {
  if (over() || now < next()) return;
  if (now >= deadline_ || phase_ == kLinking) return OnDeadline(now, detail);
  if (phase_ == kMeeting && !met_) {
    const bool leads = leader() == rank_;
    const std::string waited = "not met after " + Seconds(meeting_since_, now);
    return NotMet(leads ? Absent() : std::vector<int>{rank_}, waited + (detail.empty() ? "" : ": " + detail));
  }
  asked_ = true;
  Say({RendezvousMessage::kGiveUp, round_, Code::kDeadline, {}, Seconds(began_, now), {}});
}

void RendezvousClient::OnDeadline(TimePoint now, const std::string& detail) {
  const std::string me = NameOfRank(peers_, rank_) + " waited " + Seconds(began_, now) + " ";
  const std::string ending = detail.empty() ? "" : "; last: " + detail;
  if (phase_ == kComing) {
    return Fail({Code::kDeadline, me + "for rank 0: nobody to connect to" + ending +
                                      ". Check that rank 0 was started and still runs, and that its address and port "
                                      "can be reached from this host"},
                {0});
  }
  if (phase_ == kLinking) {
    return GiveUp({Code::kDeadline, me + "for a data connection with " + NamesOfRanks(peers_, Unlinked()) +
                                        " before the start timeout (FARANDOLE_START_TIMEOUT)" + ending},
                  Unlinked());
  }
  if (now - came_to_rank_0_ < margin_ / 2) {
    return GiveUp({Code::kDeadline, NameOfRank(peers_, rank_) +
                                        " reached rank 0 too short before its start timeout (FARANDOLE_START_TIMEOUT)"},
                  {rank_});
  }
  const std::string said =
      missing_.empty() ? "" : "; what it said last is that it waits for " + NamesOfRanks(peers_, missing_);
  GiveUp(
      {Code::kDeadline, me + "for the others, and " + NameOfRank(peers_, 0) +
                            " did not answer who is missing before the start timeout (FARANDOLE_START_TIMEOUT)" + said},
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
