// How a job starts, as each rank sees it, including rank 0. RendezvousClient decides what the rank does next and what
// it sends to rank 0. A pure state machine: messages, results and time in, actions out.
//
//   kConnecting  connects to rank 0
//   kWaiting     has sent its PeerInfo, and waits for those of the others
//   kSettingUp   shares a memory segment with the ranks of its node, and makes data connections to all others. The
//                leader, the lowest rank of the node, makes the segment; the members connect to it. Of two ranks of
//                different nodes the higher one connects
//   kReady       has told rank 0 that it is ready
//   kOver        done, or failed
//
// Rank 0 gives up in time before the first rank's deadline, and names the missing ranks. Before that, a rank that is
// set up reports whom it misses, which rank 0 cannot know: leaders and ranks without a link first, then the members
// that wait for their leader, since that may wait for another member. A rank that hears nothing until its deadline
// blames rank 0.
//
// bootstrap.cc owns one client per start. Only the thread that calls Bootstrap uses it; tests drive the same class in a
// simulation.
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
      kSetUp,    // leader: make the segment, admit members -> OnMember; member: connect to the leader -> OnShared
                 // all: connect to ToOpen(), admit higher ranks (MayLink) -> OnLink
      kHandOut,  // all members are admitted: give them the segment and all handles -> OnShared
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
  // On the leader: a member has given its descriptors.
  void OnMember(int rank);
  void OnShared();
  // This rank has failed to share memory.
  void OnNotShared(const std::string& why);
  void OnLink(int peer);
  void OnNoLink(int peer, const std::string& why);
  void OnListenerLost(const std::string& why);
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

  // ---- setting up. REQUIRES: kSetUp was requested
  const std::vector<int>& node() const { return node_; }
  int leader() const { return node_.front(); }
  bool is_absent(int member) const { return absent_.count(member) > 0; }
  // The lower ranks to which this rank must still connect.
  std::vector<int> ToOpen() const { return {unlinked_.begin(), unlinked_.lower_bound(rank_)}; }
  // Returns whether a higher rank may connect to this one now.
  bool MayLink(int rank) const { return phase_ == kSettingUp && rank > rank_ && unlinked_.count(rank) > 0; }

  // ---- the end
  // Returns whether rank 0 has decided, or this rank has failed.
  bool over() const { return phase_ == kOver; }
  const Status& status() const { return status_; }
  // The ranks that caused the failure.
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  enum Phase { kConnecting, kWaiting, kSettingUp, kReady, kOver };

  void OnPeers(const RendezvousMessage& message, TimePoint now);
  void ReportWhenSetUp();
  void OnLimit(TimePoint now, const std::string& detail);
  void OnDeadline(TimePoint now, const std::string& detail);
  bool knows_whom_it_misses() const { return !unlinked_.empty() || leader() == rank_; }
  // "rank 2 (host b, pid 4711) waited 2.5 s"
  std::string Waited(TimePoint now) const;
  // Fails, and tells rank 0.
  void GiveUp(Status why, std::vector<int> culprits);
  void Fail(Status why, std::vector<int> culprits);
  void Act(Action::Kind kind) { actions_.push_back({kind}); }
  void Say(RendezvousMessage message) { actions_.push_back({Action::kSend, std::move(message)}); }

  const int rank_;
  const PeerInfo mine_;
  const TimePoint began_, deadline_;
  Phase phase_ = kConnecting;
  std::vector<int> node_;
  std::set<int> absent_;  // on the leader: members that have not given their descriptors
  bool shared_ = false;   // the node shares memory
  std::set<int> unlinked_;
  TimePoint first_limit_ = {}, last_limit_ = {};  // of kSettingUp, for a rank that knows whom it misses, and for others
  std::vector<PeerInfo> peers_;
  Layout layout_;
  Status status_;
  std::vector<int> culprits_;
  std::vector<Action> actions_;
};

}  // namespace farandole
