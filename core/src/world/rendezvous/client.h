// How a job starts, seen from each rank, rank 0 included: what to do next and what to say to rank 0. A pure state
// machine: messages, results and time in, actions out.
//
//   kConnecting  connects to rank 0
//   kWaiting     has sent its PeerInfo; the layout is to come
//   kSharing     shares a memory segment with the ranks of its machine     SharingState
//   kReported    has said how that went; rank 0 decides
//   kLinking     makes data connections to the ranks of other groups       LinkingState
//   kOver        done, or failed
//
// A rank gives up at its own deadline at the latest, and then names the ranks that rank 0 has reported missing.
//
// bootstrap.cc owns one client per start, and setup.h asks it which ranks to let in. The calling thread of Bootstrap is
// the only one; tests drive the same class in a simulation.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "world/layout.h"
#include "world/rendezvous/messages.h"

namespace farandole {

// How far the group of this rank has come with its shared memory. The leader, the group's lowest rank, makes the
// segment; the members come to it. A failed attempt is followed by another one in the next round, among fewer ranks.
class SharingState {
 public:
  explicit SharingState(int rank) : rank_(rank) {}

  // A new round. A group that shares memory already, and whose ranks stay the same, goes on sharing.
  void Begin(int round, const std::vector<int>& group, TimePoint now, TimePoint limit);
  // The attempt is over, in whatever way.
  void Close() { open_ = false; }
  void OnShared();
  // Of a member that has given the leader what it shares. True when all are there.
  bool OnMember(int rank);
  // Of a member whose connection has ended: it is absent again, and may retry.
  void OnMemberGone(int rank);

  // REQUIRES, of all that follows: a round has begun.
  int round() const { return round_; }
  const std::vector<int>& group() const { return group_; }
  int leader() const { return group_.front(); }
  bool leads() const { return leader() == rank_; }
  bool shared() const { return shared_; }
  // Under way, and neither shared nor given up.
  bool open() const { return open_; }
  // Whether the leader lets this rank in. A rank that is still in another round is refused, and retries.
  bool MayEnter(int rank, int round) const;
  // Of the leader: the members that have not come.
  std::vector<int> Absent() const { return {absent_.begin(), absent_.end()}; }
  TimePoint began() const { return began_; }
  TimePoint limit() const { return limit_; }

 private:
  const int rank_;
  int round_ = 0;
  std::vector<int> group_;
  std::set<int> absent_;
  bool open_ = false, shared_ = false;
  TimePoint began_ = {}, limit_ = {};
};

// Which data connections to ranks of other groups are made. Of two ranks the higher one connects to the lower one.
class LinkingState {
 public:
  explicit LinkingState(int rank) : rank_(rank) {}

  // `endpoints` are where ranks listen for data, by rank.
  void Begin(const Layout& layout, std::vector<std::string> endpoints, TimePoint limit);
  void Close() { open_ = false; }
  // True when all links are made.
  bool OnLink(int peer);

  bool open() const { return open_; }
  // Lower ranks, to which this one connects.
  std::vector<int> ToOpen() const;
  // Whether a higher rank may connect to this one now.
  bool MayLink(int rank) const { return open_ && rank > rank_ && missing_.count(rank) > 0; }
  std::vector<int> Missing() const { return {missing_.begin(), missing_.end()}; }
  const std::string& endpoint_of(int rank) const { return endpoints_[static_cast<size_t>(rank)]; }
  TimePoint limit() const { return limit_; }

 private:
  const int rank_;
  std::vector<std::string> endpoints_;
  std::set<int> missing_;
  bool open_ = false;
  TimePoint limit_ = {};
};

class RendezvousClient {
 public:
  struct Action {
    enum Kind {
      kSend,    // message, to rank 0
      kListen,  // open a data endpoint -> OnListening
      kShare,  // the leader makes the segment and lets members in (MayEnter, OnMember); a member goes to it -> OnShared
      kHandOut,  // all members are here: give them what they share -> OnShared
      kLink,     // connect to linking().ToOpen(), let higher ranks in (MayLink) -> OnLink
      kDone,
      kFail,  // status()
    };
    Kind kind;
    RendezvousMessage message = {};
  };

  RendezvousClient(int rank, PeerInfo mine, TimePoint now, TimePoint deadline);

  // ---- what happens
  void OnConnected(TimePoint now);
  void OnMessage(const RendezvousMessage& message, TimePoint now);
  void OnServerLost(const std::string& how);
  void OnListening(const Status& status, const std::string& endpoint);
  void OnMember(int rank) {
    if (sharing_.OnMember(rank)) Act(Action::kHandOut);
  }
  void OnMemberGone(int rank) { sharing_.OnMemberGone(rank); }
  void OnShared();
  void OnNotShared(int blamed, const std::string& why);
  void OnLink(int peer);
  void OnNoLink(int peer, const std::string& why);
  // `detail` says what has been refused so far, for messages.
  void OnTime(TimePoint now, const std::string& detail);
  // When OnTime is wanted next.
  TimePoint next() const;
  // The user does not want to wait any longer.
  void Interrupt();

  // ---- what it means
  std::vector<Action> TakeActions() { return std::move(actions_); }
  const std::vector<PeerInfo>& peers() const { return peers_; }
  const Layout& layout() const { return layout_; }
  const SharingState& sharing() const { return sharing_; }
  const LinkingState& linking() const { return linking_; }
  // Whether rank 0 has decided, or this rank has failed.
  bool over() const { return phase_ == kOver; }
  const Status& status() const { return status_; }
  // The ranks that caused the failure.
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  enum Phase { kConnecting, kWaiting, kSharing, kReported, kLinking, kOver };

  void OnLayout(const RendezvousMessage& message, TimePoint now);
  void OnLinks(const RendezvousMessage& message, TimePoint now);
  // Leaving a phase closes its state, so that late ranks are refused.
  void Enter(Phase phase);
  // Tells rank 0 how the round went. Without blamed ranks memory is shared, and `text` is the data endpoint; else
  // `text` says why not.
  void Report(std::vector<int> blamed, const std::string& text);
  void OnDeadline(TimePoint now, const std::string& detail);
  // Fails, and tells rank 0.
  void GiveUp(Status why, std::vector<int> culprits);
  void Fail(Status why, std::vector<int> culprits);
  void Act(Action::Kind kind) { actions_.push_back({kind}); }
  void Say(RendezvousMessage message) { actions_.push_back({Action::kSend, std::move(message)}); }

  const int rank_;
  const PeerInfo mine_;
  const TimePoint began_, deadline_;
  const TimePoint::duration margin_;
  bool asked_ = false;  // rank 0 was asked which ranks are missing
  TimePoint connected_at_ = {};
  Phase phase_ = kConnecting;
  SharingState sharing_;
  LinkingState linking_;
  std::string data_endpoint_;
  std::vector<PeerInfo> peers_;
  Layout layout_;
  std::vector<int> missing_;  // as rank 0 reported last
  Status status_;
  std::vector<int> culprits_;
  std::vector<Action> actions_;
};

}  // namespace farandole
