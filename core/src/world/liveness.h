// Liveness decides from the evidence in a running job which rank has died and which is to blame. A pure state machine.
//
//   process ended      certain, and known at once (a pidfd of the same machine)
//   connection closed  a hint. A rank that leaves says so on another connection, which may be slower. A rank that fails
//                      makes others fail. After kSuspicionTimeout without a better explanation the first rank that
//                      fell silent is to blame. Rank 0 is the exception: it says why before it ends because of another
//                      rank. So a silent rank 0 is to blame, whichever rank fell silent first
//   control closed     the same for the control connection, on which the rank would have said that it leaves
//   goodbye            a rank said on its early lane that it leaves. Then the end of its process or of a data
//                      connection is no evidence. The end of its control connection still is, since LEAVING may be lost
//   leaving            LEAVING has arrived, so no end is evidence; earlier messages are still to be read
//   left               the rank has left in good order: it is not dead, but no other rank can wait for it any longer
//
// The progress loop owns the Liveness, reports what it sees and acts on the result. One thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "common/clock.h"

namespace farandole {

class Liveness {
 public:
  static constexpr std::chrono::milliseconds kSuspicionTimeout{100};

  enum class Evidence { kProcessEnded, kConnectionClosed };
  struct FailedRank {
    int rank = 0;
    Evidence evidence = Evidence::kProcessEnded;
  };

  void OnProcessEnded(int rank);
  void OnConnectionClosed(int rank, TimePoint now);
  void OnControlClosed(int rank, TimePoint now);
  void OnGoodbye(int rank);
  void OnLeaving(int rank);
  void OnLeft(int rank, TimePoint now);

  // Returns the rank to blame, once. An ended process precedes all closed connections, and rank 0 precedes
  // other ranks with the same evidence. REQUIRES: all evidence up to `now` has been reported.
  std::optional<FailedRank> FindFailedRank(TimePoint now);
  // A rank left at least kSuspicionTimeout ago, so an operation of its sets that still waits can never start.
  bool HasLeftForLong(TimePoint now) const;

  bool HasLeft(int rank) const { return left_.count(rank) > 0; }
  bool suspects_somebody() const { return !ended_.empty() || !closed_.empty(); }

 private:
  void Suspect(int rank, TimePoint now);
  bool IsGoing(int rank) const { return HasLeft(rank) || leaving_.count(rank) > 0; }

  std::set<int> left_, leaving_, goodbyes_;
  std::set<int> ended_;              // unexplained, and not judged yet
  std::map<int, TimePoint> closed_;  // the same, with the time of the first evidence
  std::set<int> control_closed_;
  std::optional<TimePoint> left_since_;  // when the first rank left
};

}  // namespace farandole
