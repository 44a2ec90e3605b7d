// How a job starts, as each rank sees it, including rank 0. RendezvousClient decides what the rank does next and what
// it sends to rank 0. A pure state machine: messages, results and time in, actions out.
//
//   kConnecting  connects to rank 0
//   kWaiting     has sent its PeerInfo, and waits for the layout
//   kSharing     shares a memory segment with the ranks of its machine     SharingState
//   kReported    has reported the outcome; rank 0 decides
//   kLinking     makes data connections to the ranks of other groups       LinkingState
//   kOver        done, or failed
//
// A rank gives up at its own deadline at the latest, and then names the ranks that rank 0 reported as missing.
//
// bootstrap.cc owns one client per start, and setup.h asks it which ranks to admit. Only the thread that calls
// Bootstrap uses it; tests drive the same class in a simulation.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "world/layout.h"
#include "world/rendezvous/messages.h"

namespace farandole {

// The state of shared memory in the group of this rank. The leader, the group's lowest rank, makes the segment; the
// members connect to it. After a failed attempt the next round tries again with fewer ranks.
class SharingState {
 public:
  explicit SharingState(int rank) : rank_(rank) {}

  // Begins a round. A group that already shares memory, and whose ranks stay the same, keeps it.
  void Begin(int round, const std::vector<int>& group, TimePoint now, TimePoint limit);
  // Ends the attempt, successful or not.
  void Close() { open_ = false; }
  void OnShared();
  // A member has given its descriptors to the leader. True when all members have.
  bool OnMember(int rank);
  // The connection of a member has ended. The member is absent again, and may retry.
  void OnMemberGone(int rank);

  // REQUIRES, of all that follows: a round has begun.
  int round() const { return round_; }
  const std::vector<int>& group() const { return group_; }
  int leader() const { return group_.front(); }
  bool leads() const { return leader() == rank_; }
  bool shared() const { return shared_; }
  // Returns whether the attempt is under way.
  bool open() const { return open_; }
  // Returns whether the leader admits this rank. The leader refuses a rank in another round, which then retries.
  bool MayEnter(int rank, int round) const;
  // On the leader: the members that have not given their descriptors.
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

// The state of the data connections to ranks of other groups. Of two ranks the higher one connects to the lower one.
class LinkingState {
 public:
  explicit LinkingState(int rank) : rank_(rank) {}

  // `endpoints`: where each rank listens for data, by rank.
  void Begin(const Layout& layout, std::vector<std::string> endpoints, TimePoint limit);
  void Close() { open_ = false; }
  // True when all links are made.
  bool OnLink(int peer);

  bool open() const { return open_; }
  // The lower ranks to which this rank must still connect.
  std::vector<int> ToOpen() const;
  // Returns whether a higher rank may connect to this one now.
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
      kSend,     // message, to rank 0
      kListen,   // open a data endpoint -> OnListening
      kShare,    // leader: make the segment, admit members (MayEnter, OnMember); member: connect to it -> OnShared
      kHandOut,  // all members are admitted: give them the segment and all handles -> OnShared
      kLink,     // connect to linking().ToOpen(), admit higher ranks (MayLink) -> OnLink
      kDone,
      kFail,  // status()
    };
    Kind kind;
    RendezvousMessage message = {};
  };

  RendezvousClient(int rank, PeerInfo mine, TimePoint now, TimePoint deadline);

  // ---- events
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
  // `detail` is the last refusal, for messages.
  void OnTime(TimePoint now, const std::string& detail);
  // When OnTime must be called next.
  TimePoint next() const;
  // The user has cancelled the start.
  void Interrupt();

  // ---- results
  std::vector<Action> TakeActions() { return std::move(actions_); }
  const std::vector<PeerInfo>& peers() const { return peers_; }
  const Layout& layout() const { return layout_; }
  const SharingState& sharing() const { return sharing_; }
  const LinkingState& linking() const { return linking_; }
  // Returns whether rank 0 has decided, or this rank has failed.
  bool over() const { return phase_ == kOver; }
  const Status& status() const { return status_; }
  // The ranks that caused the failure.
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  enum Phase { kConnecting, kWaiting, kSharing, kReported, kLinking, kOver };

  void OnLayout(const RendezvousMessage& message, TimePoint now);
  void OnLinks(const RendezvousMessage& message, TimePoint now);
  // Enters a phase and closes the states of the others, so that late ranks are refused.
  void Enter(Phase phase);
  // Tells rank 0 the outcome of the round. No blamed ranks: memory is shared, and `text` is the data endpoint. Else
  // `text` says why memory is not shared.
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
