// How a job starts, seen from each rank, rank 0 included: what to do next and what to say to rank 0. A pure state
// machine: messages, results and time in, actions out.
//
//   kComing    connects to rank 0
//   kWaiting   has sent its PeerInfo; the layout is to come
//   kMeeting   shares a memory segment with the ranks of its machine
//   kSettled   has said how that went; rank 0 decides
//   kLinking   makes data connections to the ranks of other groups
//   kOver      done, or failed
//
// A rank gives up at its own deadline at the latest, with the names of those that it was told are missing. One thread.
#pragma once

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
      kMeet,     // leader(): make the segment and let members in (MayEnter, OnEntered); else go to leader() -> OnMet
      kHandOut,  // everybody is here: give the members what they share -> OnMet
      kLink,     // connect to links_to_open(), let higher counterparts in (MayLink) -> OnLink
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
  void OnEntered(int rank);  // a member of the group has come and given what it shares
  void OnGone(int rank);     // and has hung up: it may come again
  void OnMet();
  void OnNotMet(int blamed, const std::string& why);
  void OnLink(int peer);
  void OnNoLink(int peer, const std::string& why);
  // `detail` says what has been refused so far, for messages.
  void OnTime(TimePoint now, const std::string& detail);
  TimePoint next() const;
  // The user does not want to wait any longer.
  void Interrupt();

  // ---- what it means
  std::vector<Action> TakeActions() { return std::move(actions_); }
  const std::vector<PeerInfo>& peers() const { return peers_; }
  const Layout& layout() const { return layout_; }
  int round() const { return round_; }
  // This rank's group: its ranks, its leader, whether a rank may come in.
  const std::vector<int>& group() const;
  int leader() const { return group()[0]; }
  bool MayEnter(int rank, int round) const;
  std::vector<int> links_to_open() const;
  bool MayLink(int rank) const;
  const std::string& endpoint_of(int rank) const { return endpoints_[static_cast<size_t>(rank)]; }
  // Whether rank 0's word has come and what it was; culprits: because of whom.
  bool over() const { return phase_ == kOver; }
  const Status& status() const { return status_; }
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  enum Phase { kComing, kWaiting, kMeeting, kSettled, kLinking, kOver };

  void OnLayout(const RendezvousMessage& message, TimePoint now);
  void OnLinks(const RendezvousMessage& message, TimePoint now);
  void TellOutcome();
  void NotMet(std::vector<int> blamed, const std::string& why);
  std::vector<int> Unlinked() const;
  std::vector<int> Absent() const;
  void OnDeadline(TimePoint now, const std::string& detail);
  // Tells rank 0, too.
  void GiveUp(Status why, std::vector<int> culprits);
  void Fail(Status why, std::vector<int> culprits);
  void Act(Action::Kind kind) { actions_.push_back({kind}); }
  void Say(RendezvousMessage message) { actions_.push_back({Action::kSend, std::move(message)}); }

  const int rank_;
  const PeerInfo mine_;
  const TimePoint began_, deadline_;
  const TimePoint::duration margin_;
  bool asked_ = false;  // rank 0 is to say who is missed
  TimePoint came_to_rank_0_ = {};
  TimePoint meeting_since_ = {};
  TimePoint phase_deadline_ = {};  // of a meeting, of linking
  Phase phase_ = kComing;
  int round_ = 0;
  bool met_ = false;
  std::string data_endpoint_;
  std::vector<PeerInfo> peers_;
  Layout layout_;
  std::vector<bool> came_, linked_;  // by rank
  std::vector<std::string> endpoints_;
  std::vector<int> missing_;  // as rank 0 told last
  Status status_;
  std::vector<int> culprits_;
  std::vector<Action> actions_;
};

}  // namespace farandole
