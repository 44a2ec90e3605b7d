// How a job starts, as rank 0 sees it. RendezvousServer collects the messages of the ranks and decides which ranks
// share memory. Then it tells all ranks one result: start, or why not and because of which ranks. A pure state machine:
// messages and time in, messages out.
//
//   kPeers     waits for the PeerInfo of every rank, compares them, and decides on the layout of round 0
//   kSharing   each group reports whether its ranks share memory. If a group fails in round 0, the ranks to blame
//              continue without shared memory. If a group fails in round 1, all its ranks do. So round 2 is the last
//   kLinking   several groups only: all ranks get all data endpoints, and report when they are linked
//   kOver      the job starts, or the start has failed
//
// Every rank but rank 0 has a connection, whose end counts as the rank's death. At the deadline the server names the
// ranks that have not sent the report of the phase.
//
// On rank 0 bootstrap.cc owns one server per start. Only the thread that calls Bootstrap uses it; tests drive the same
// class in a simulation.
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "world/layout.h"
#include "world/rendezvous/messages.h"

namespace farandole {

struct AddressedMessage {
  int rank = 0;  // the receiver
  RendezvousMessage message;
};

class RendezvousServer {
 public:
  // `endpoint` is where ranks connect. Messages name it.
  RendezvousServer(int size, std::string endpoint, TimePoint now, TimePoint deadline);

  // A peer that holds the key says that it is `rank`. An error concerns that peer alone: there is no such rank, or the
  // rank is connected already.
  Status Admit(int rank);
  void OnMessage(int rank, const RendezvousMessage& message);
  // `how`: "died", "closed its connection".
  void OnLost(int rank, const std::string& how);
  // A connection was turned away. It may have been that of a missing rank.
  void OnTurnedAway(const std::string& reason) { turned_away_ = reason; }
  void OnTime(TimePoint now);
  // When OnTime must be called next.
  TimePoint next() const;

  bool over() const { return phase_ == kOver; }
  std::vector<AddressedMessage> TakeOutgoing() { return std::move(outgoing_); }
  // Warnings for the log.
  std::vector<std::string> TakeNotes() { return std::move(notes_); }

 private:
  enum Phase { kPeers, kSharing, kLinking, kOver };

  void OnPeerInfo(int rank, const RendezvousMessage& message);
  void OnOutcome(int rank, const RendezvousMessage& message);
  void BeginRound();
  void EndRound();
  // Marks ranks of a failed group that have no shared memory from now on.
  void MarkUnshared(const std::vector<int>& group);
  void BeginLinking();
  // Enters a phase and forgets the reports of the last one.
  void Enter(Phase phase);
  void GiveUp(Status why, std::vector<int> culprits);
  // Ends the start because `rank` has waited for `how_long`, and names the missing ranks.
  void GiveUpWaiting(int rank, const std::string& how_long);
  std::vector<int> Missing() const;
  void ToAll(const RendezvousMessage& message);

  const int size_;
  const std::string endpoint_;
  const TimePoint deadline_;
  TimePoint warn_at_;  // when missing ranks are next named in the log
  const TimePoint began_;
  Phase phase_ = kPeers;
  int round_ = 0;
  std::vector<bool> connected_, reported_, unshared_;  // by rank; reported_: has sent the report of this phase
  std::vector<PeerInfo> peers_;
  std::vector<RendezvousMessage> outcomes_;
  Layout layout_;
  std::string turned_away_;
  std::vector<AddressedMessage> outgoing_;
  std::vector<std::string> notes_;
};

}  // namespace farandole
