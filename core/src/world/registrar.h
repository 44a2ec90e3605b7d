// How a job starts, seen from rank 0: collects what the ranks say, decides who shares memory with whom, and tells all
// of them one result: go, or why not and because of whom. A pure state machine: messages and time in, messages out.
//
//   kCards     all cards are there -> do they go together? -> layout, round 0
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
#include "world/start_message.h"

namespace farandole {

struct StartLetter {
  int rank = 0;  // to whom
  StartMessage message;
};

class Registrar {
 public:
  // `place` is where ranks come to, for messages.
  Registrar(int size, std::string place, TimePoint now, TimePoint deadline);

  // Somebody who holds the key says it is `rank`. An error is for that one alone: there is no such rank, or it is here.
  Status Admit(int rank, TimePoint now);
  void OnMessage(int rank, const StartMessage& message, TimePoint now);
  // `how`: "died", "closed its connection".
  void OnLost(int rank, const std::string& how);
  // Somebody was turned away at the door; a rank that is missed may be among them.
  void OnTurnedAway(const std::string& reason) { turned_away_ = reason; }
  void OnTime(TimePoint now);
  // When OnTime is wanted next.
  TimePoint next() const;

  bool over() const { return phase_ == kOver; }
  std::vector<StartLetter> TakeLetters() { return std::move(letters_); }
  // For the log.
  std::vector<std::string> TakeNotes() { return std::move(notes_); }

 private:
  enum Phase { kCards, kMeeting, kLinking, kOver };

  void OnCard(int rank, const StartMessage& message, TimePoint now);
  void OnOutcome(int rank, const StartMessage& message, TimePoint now);
  void BeginRound(TimePoint now);
  void EndRound(TimePoint now);
  void TakeApart(const std::vector<int>& group);
  void BeginLinking(TimePoint now);
  void Enter(Phase phase, TimePoint now);
  void GiveUp(Status why, std::vector<int> culprits);
  void GiveUpWaiting(int rank, const std::string& how_long);
  void TellWhoIsMissing(TimePoint now);
  std::vector<int> Missing() const;
  void ToAll(const StartMessage& message);

  const int size_;
  const std::string place_;
  const TimePoint deadline_;
  TimePoint told_, warn_at_;  // when the missing were last told to all, are next named in the log
  const TimePoint began_;
  Phase phase_ = kCards;
  int round_ = 0;
  std::vector<bool> here_, said_, apart_;  // by rank; said_: what the phase wants
  std::vector<Card> cards_;
  std::vector<StartMessage> outcomes_;
  std::vector<int> told_missing_;
  Layout layout_;
  std::string turned_away_;
  std::vector<StartLetter> letters_;
  std::vector<std::string> notes_;
};

}  // namespace farandole
