// How a job starts, seen from rank 0: collects what the ranks say, decides which ranks share memory, and tells all of
// them one result: start, or why not and because of which ranks. A pure state machine: messages and time in, messages
// out.
//
//   kPeers     waits for the PeerInfo of every rank, compares them, and decides on the layout of round 0
//   kSharing   each group reports whether its ranks share memory. If a group fails in round 0, the ranks to blame go on
//              without shared memory; if one fails in round 1, all its ranks do. So round 2 is the last
//   kLinking   several groups only: all ranks get all data endpoints, and report when they are linked
//   kOver      go, or given up
//
// Every rank but 0 itself is connected, and the end of its connection is a death. At the deadline the server names the
// ranks that have not reported what the phase waits for.
//
// bootstrap.cc owns it, on rank 0, for one start. The calling thread of Bootstrap is the only one; tests drive the same
// class in a simulation.
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
  // `endpoint` is where ranks connect, for messages.
  RendezvousServer(int size, std::string endpoint, TimePoint now, TimePoint deadline);

  // A peer that holds the key says that it is `rank`. An error is for that peer alone: there is no such rank, or the
  // rank is connected already.
  Status Admit(int rank, TimePoint now);
  void OnMessage(int rank, const RendezvousMessage& message, TimePoint now);
  // `how`: "died", "closed its connection".
  void OnLost(int rank, const std::string& how);
  // A connection was turned away; it may have been that of a missing rank.
  void OnTurnedAway(const std::string& reason) { turned_away_ = reason; }
  void OnTime(TimePoint now);
  // When OnTime is wanted next.
  TimePoint next() const;

  bool over() const { return phase_ == kOver; }
  std::vector<AddressedMessage> TakeOutgoing() { return std::move(outgoing_); }
  // Warnings for the log.
  std::vector<std::string> TakeNotes() { return std::move(notes_); }

 private:
  enum Phase { kPeers, kSharing, kLinking, kOver };

  void OnPeerInfo(int rank, const RendezvousMessage& message, TimePoint now);
  void OnOutcome(int rank, const RendezvousMessage& message, TimePoint now);
  void BeginRound(TimePoint now);
  void EndRound(TimePoint now);
  // Of a group that has failed: its ranks without shared memory from here on.
  void MarkUnshared(const std::vector<int>& group);
  void BeginLinking(TimePoint now);
  // Forgets what the ranks have reported in the phase before.
  void Enter(Phase phase, TimePoint now);
  void GiveUp(Status why, std::vector<int> culprits);
  // For a rank that has waited so long: names the ranks that are missing.
  void GiveUpWaiting(int rank, const std::string& how_long);
  void ReportMissing(TimePoint now);
  std::vector<int> Missing() const;
  void ToAll(const RendezvousMessage& message);

  const int size_;
  const std::string endpoint_;
  const TimePoint deadline_;
  TimePoint missing_reported_at_;  // when missing ranks were last reported to all
  TimePoint warn_at_;              // when they are next named in the log
  const TimePoint began_;
  Phase phase_ = kPeers;
  int round_ = 0;
  std::vector<bool> connected_, reported_, unshared_;  // by rank; reported_: it has reported what the phase waits for
  std::vector<PeerInfo> peers_;
  std::vector<RendezvousMessage> outcomes_;
  std::vector<int> reported_missing_;
  Layout layout_;
  std::string turned_away_;
  std::vector<AddressedMessage> outgoing_;
  std::vector<std::string> notes_;
};

}  // namespace farandole
