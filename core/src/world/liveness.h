// Which rank has died and which is to blame: weighs the signs of a running job. A pure state machine.
//
//   process ended      sure, and at once (a pidfd of the same machine)
//   connection closed  a hint. A rank that leaves says so on another connection, which may be slower; and a rank that
//                      fails makes others fail. After kSuspicion without a better explanation the first rank that fell
//                      silent is to blame. Rank 0 is the exception: before it ends because of another rank it says
//                      so, thus a silent rank 0 is to blame, whichever rank fell silent first
//   control closed     the same, of the connection by which the rank would have said that it leaves
//   farewell           the rank has said on a connection for data that it leaves: the end of its process or of such a
//                      connection is no sign, but the end of its control connection still is, since LEAVING may be lost
//   leaving            LEAVING has come, so no end is a sign; what came before it is still to be read
//   left               in good order: no death, but no other rank may wait for it any longer
//
// The progress loop owns it, reports what it sees and acts on the verdict. One thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "common/clock.h"

namespace farandole {

class Liveness {
 public:
  static constexpr std::chrono::milliseconds kSuspicion{100};

  enum class Sign { kProcessEnded, kConnectionClosed };
  struct Verdict {
    int rank = 0;
    Sign sign = Sign::kProcessEnded;
  };

  void OnProcessEnded(int rank);
  void OnConnectionClosed(int rank, TimePoint now);
  void OnControlClosed(int rank, TimePoint now);
  void OnFarewell(int rank);
  void OnLeaving(int rank);
  void OnLeft(int rank, TimePoint now);

  // The rank to blame, once per sign: a process that has ended before any connection that is only closed, and among
  // several of them rank 0. REQUIRES: all signs that there are at `now` have been reported.
  std::optional<Verdict> Judge(TimePoint now);
  // A rank has left so long ago that operations which still wait for the negotiation wait in vain.
  bool WaitingIsVain(TimePoint now) const;

  bool HasLeft(int rank) const { return left_.count(rank) > 0; }
  bool suspects_somebody() const { return !ended_.empty() || !closed_.empty(); }

 private:
  void Suspect(int rank, TimePoint now);
  bool IsGoing(int rank) const { return HasLeft(rank) || leaving_.count(rank) > 0; }

  std::set<int> left_, leaving_, farewells_;
  std::set<int> ended_;              // without another explanation, and not judged yet
  std::map<int, TimePoint> closed_;  // the same, with the time of the first sign
  std::set<int> control_closed_;
  std::optional<TimePoint> left_since_;  // when the first rank left
};

}  // namespace farandole
