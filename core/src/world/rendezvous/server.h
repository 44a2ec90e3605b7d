// How a job starts, as rank 0 sees it. RendezvousServer collects the messages of the ranks. Then it tells all ranks one
// result: start, or why not and because of which ranks. A pure state machine: messages and time in, messages out.
//
//   kPeers      waits for the PeerInfo of every rank, compares them, and sends them to all
//   kSettingUp  waits until every rank is ready
//   kOver       the job starts, or the start has failed
//
// Every rank but rank 0 has a connection, whose end counts as the rank's death. Shortly before the first rank's
// deadline the server gives up and names the ranks that have not sent the report of the phase.
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
  void OnMessage(int rank, const RendezvousMessage& message, TimePoint now);
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
  enum Phase { kPeers, kSettingUp, kOver };

  void OnPeerInfo(int rank, const RendezvousMessage& message, TimePoint now);
  void SendPeers(TimePoint now);
  // Warns about ranks that share no memory although others of their machine do, or could.
  void NoteUnshared();
  void GiveUp(Status why, std::vector<int> culprits);
  // Names the missing ranks.
  void GiveUpWaiting(TimePoint now);
  TimePoint limit() const { return phase_ == kPeers ? deadline_ - 2 * margin_ : deadline_ - margin_; }
  std::vector<int> Missing() const;
  void ToAll(const RendezvousMessage& message);

  const int size_;
  const std::string endpoint_;
  const TimePoint began_, own_deadline_;
  // Each phase ends so long before the deadline: time to set up, and for the last message to arrive.
  const TimePoint::duration margin_;
  TimePoint deadline_;  // of the rank that has the least time left
  TimePoint warn_at_;   // when missing ranks are next named in the log
  Phase phase_ = kPeers;
  std::vector<bool> connected_, reported_;  // by rank; reported_: has sent the report of this phase
  std::vector<PeerInfo> peers_;
  std::string turned_away_;
  std::vector<AddressedMessage> outgoing_;
  std::vector<std::string> notes_;
};

}  // namespace farandole
