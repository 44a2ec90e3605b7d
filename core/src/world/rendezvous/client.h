// How a job starts, as each rank sees it, including rank 0. RendezvousClient decides what the rank does next and what
// it sends to rank 0. A pure state machine: messages, results and time in, actions out.
//
//   kConnecting  connects to rank 0
//   kWaiting     has sent its PeerInfo, and waits for the layout
//   kSharing     shares a memory segment with the ranks of its machine. The leader, the lowest of them, makes the
//                segment; the members connect to it. After a failed attempt the next round tries again with fewer ranks
//   kReported    has reported the outcome; rank 0 decides
//   kLinking     makes data connections to the ranks of other groups. Of two ranks the higher one connects
//   kOver        done, or failed
//
// A rank gives up at its own deadline at the latest. Shortly before, it asks rank 0 which ranks are missing.
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

class RendezvousClient {
 public:
  struct Action {
    enum Kind {
      kSend,     // message, to rank 0
      kListen,   // open a data endpoint -> OnListening
      kShare,    // leader: make the segment, admit members (MayEnter, OnMember); member: connect to it -> OnShared
      kHandOut,  // all members are admitted: give them the segment and all handles -> OnShared
      kLink,     // connect to ToOpen(), admit higher ranks (MayLink) -> OnLink
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
  // On the leader: a member has given its descriptors.
  void OnMember(int rank);
  // The connection of a member has ended. The member is absent again, and may retry. Once memory is shared, the end of
  // a member's connection has no meaning.
  void OnMemberGone(int rank) {
    if (shares()) absent_.insert(rank);
  }
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

  // ---- sharing. REQUIRES: a round has begun
  int round() const { return round_; }
  const std::vector<int>& group() const { return group_; }
  int leader() const { return group_.front(); }
  // Returns whether the leader admits this rank. The leader refuses a rank in another round, which then retries.
  bool MayEnter(int rank, int round) const {
    return shares() && leader() == rank_ && round == round_ && absent_.count(rank) > 0;
  }

  // ---- linking
  // The lower ranks to which this rank must still connect.
  std::vector<int> ToOpen() const { return {unlinked_.begin(), unlinked_.lower_bound(rank_)}; }
  // Returns whether a higher rank may connect to this one now.
  bool MayLink(int rank) const { return phase_ == kLinking && rank > rank_ && unlinked_.count(rank) > 0; }
  const std::string& endpoint_of(int rank) const { return endpoints_[static_cast<size_t>(rank)]; }

  // ---- the end
  // Returns whether rank 0 has decided, or this rank has failed.
  bool over() const { return phase_ == kOver; }
  const Status& status() const { return status_; }
  // The ranks that caused the failure.
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  enum Phase { kConnecting, kWaiting, kSharing, kReported, kLinking, kOver };

  void OnLayout(const RendezvousMessage& message, TimePoint now);
  void OnLinks(const RendezvousMessage& message, TimePoint now);
  bool shares() const { return phase_ == kSharing && !shared_; }  // the attempt is under way
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
  int round_ = 0;
  std::vector<int> group_;
  std::set<int> absent_;  // members of the group that have not given their descriptors to the leader
  bool shared_ = false;   // the group shares memory
  TimePoint sharing_began_ = {}, limit_ = {};  // of kSharing and kLinking
  std::set<int> unlinked_;
  std::vector<std::string> endpoints_;  // where each rank listens for data, by rank
  std::string data_endpoint_;
  std::vector<PeerInfo> peers_;
  Layout layout_;
  Status status_;
  std::vector<int> culprits_;
  std::vector<Action> actions_;
};

}  // namespace farandole
