// How a job starts, seen from rank 0: collects what the ranks say, decides who shares memory with whom, and tells all
// of them one result: start, or why not and because of whom. A pure state machine: messages and time in, messages out.
//
//   kPeers     waits for the PeerInfo of every rank, compares them, and decides on the layout of round 0
//   kMeeting   each group tells how its meeting went. A group that could not meet loses the ranks to blame, and falls
//              apart in the second round; rounds end after the third, in which nobody is left to meet
//   kLinking   several groups only: all data endpoints go to all, all say when they are linked
//   kOver      go, or given up
//
// Every rank but 0 itself is heard over a connection, whose end is a death. At the deadline those that have not said
// what the phase wants are named. One thread.
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "world/layout.h"
#include "world/rendezvous/messages.h"

namespace farandole {

struct AddressedMessage {
  int rank = 0;  // to whom
  RendezvousMessage message;
};

class RendezvousServer {
 public:
  // `place` is where ranks come to, for messages.
  RendezvousServer(int size, std::string place, TimePoint now, TimePoint deadline);

  // Somebody who holds the key says it is `rank`. An error is for that one alone: there is no such rank, or it is here.
  Status Admit(int rank, TimePoint now);
  void OnMessage(int rank, const RendezvousMessage& message, TimePoint now);
  // `how`: "died", "closed its connection".
  void OnLost(int rank, const std::string& how);
  // Somebody was turned away at the door; a rank that is missed may be among them.
  void OnTurnedAway(const std::string& reason) { turned_away_ = reason; }
  void OnTime(TimePoint now);
  // When OnTime is wanted next.
  TimePoint next() const;

  bool over() const { return phase_ == kOver; }
  std::vector<AddressedMessage> TakeOutgoing() { return std::move(outgoing_); }
  // For the log.
  std::vector<std::string> TakeNotes() { return std::move(notes_); }

 private:
  enum Phase { kPeers, kMeeting, kLinking, kOver };

  void OnPeerInfo(int rank, const RendezvousMessage& message, TimePoint now);
  void OnOutcome(int rank, const RendezvousMessage& message, TimePoint now);
  void BeginRound(TimePoint now);
  void EndRound(TimePoint now);
  void TakeApart(const std::vector<int>& group);
  void BeginLinking(TimePoint now);
  void Enter(Phase phase, TimePoint now);
  void GiveUp(Status why, std::vector<int> culprits);
  void GiveUpWaiting(int rank, const std::string& how_long);
  void TellWhoIsMissing(TimePoint now);
  std::vector<int> Missing() const;
  void ToAll(const RendezvousMessage& message);

  const int size_;
  const std::string place_;
  const TimePoint deadline_;
  TimePoint told_, warn_at_;  // when the missing were last told to all, are next named in the log
  const TimePoint began_;
  Phase phase_ = kPeers;
  int round_ = 0;
  std::vector<bool> here_, said_, apart_;  // by rank; said_: what the phase wants
  std::vector<PeerInfo> peers_;
  std::vector<RendezvousMessage> outcomes_;
  std::vector<int> told_missing_;
  Layout layout_;
  std::string turned_away_;
  std::vector<AddressedMessage> outgoing_;
  std::vector<std::string> notes_;
};

}  // namespace farandole
