// Who is dead and who is to blame: weighs the signs of a running job. A pure state machine; the progress loop reports
// what it sees and acts on the verdict.
//
//   process ended      sure, and at once (a pidfd of the same machine)
//   connection closed  a hint: who leaves says so on another way, which may be slower, and who fails takes others with
//                      it. After kSuspicion without a better explanation the first to fall silent is to blame; but
//                      rank 0, if it is silent, for it tells the others because of whom it ends
//   control closed     the same, of the connection by which it would have said that it leaves
//   farewell           it has said so on a connection for data: the end of its process or of such a connection is no
//                      sign, but the end of its control connection still is, for the word itself may be lost
//   leaving            the word itself has come, so no end is a sign; what came before that word is still to be read
//   left               in good order: no death, but nobody may wait for it any longer
//
// One thread.
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

  // Who is to blame, once per sign: a process that has ended before any connection that is only closed, and among
  // several of them rank 0. REQUIRES: all signs that are there at `now` have been reported.
  std::optional<Verdict> Judge(TimePoint now);
  // Somebody has left so long ago that what still waits for the negotiation waits in vain.
  bool WaitingIsVain(TimePoint now) const;

  bool HasLeft(int rank) const { return left_.count(rank) > 0; }
  bool suspects_somebody() const { return !ended_.empty() || !closed_.empty(); }

 private:
  void Suspect(int rank, TimePoint now);
  bool IsGoing(int rank) const { return HasLeft(rank) || leaving_.count(rank) > 0; }

  std::set<int> left_, leaving_, ended_;
  std::set<int> farewells_, control_closed_;
  std::map<int, TimePoint> closed_;
  std::optional<TimePoint> left_since_;
};

}  // namespace farandole
