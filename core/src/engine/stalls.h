// Ranks that do not come: what is said of them, and when this rank gives up.
//
//   Wait            an operation of this rank, and the ranks that it waits for
//   Delay           everything that the same ranks let wait; what a warning tells
//   Delays          which delays are news
//   StallInspector  finds the waits, asks rank 0 and the late ranks, warns, and returns the reason to end the epoch
//
// ProgressLoop owns the inspector and calls it with the ProgressLock. Delays and the types are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/config.h"
#include "controller/coordinator.h"
#include "engine/deadlocks.h"
#include "engine/failures.h"
#include "engine/operations.h"
#include "world/world.h"

namespace farandole {

// Everything that the same ranks let wait.
struct Delay {
  std::vector<int> ranks;  // ascending
  OperationPtr first;      // has waited longest
  int64_t waited_ms = 0;   // as long as this
  size_t operations = 0;
  bool is_ours_to_tell = false;  // of one of them at least
  bool is_mutual = false;        // one of them at least
  std::string reason;            // of the first, see Wait
};

// Speaks of a rank once, however many operations wait for it.
class Delays {
 public:
  explicit Delays(int64_t warn_after_ms) : warn_after_ms_(warn_after_ms) {}
  // Of ranks that are waited for longer than the limit, or a little longer where an answer may tell more: those that
  // were not returned in the last minute, or were not late meanwhile; and those that have become ours to tell of.
  std::vector<Delay> News(const std::vector<Wait>& waits, TimePoint now);

 private:
  const int64_t warn_after_ms_;
  struct Reported {
    TimePoint when;
    bool ours;
  };
  std::map<int, Reported> reported_;  // those that are late, by rank
};

// "allreduce 'w'" or "120 operations, the first of them allreduce 'w',"
std::string TitleOf(const Delay& delay);

class StallInspector {
 public:
  // coordinator: rank 0's, which knows who is absent; null elsewhere.
  StallInspector(const World* world, Operations* operations, const Coordinator* coordinator, const Settings& settings);

  // Looks at everything that this rank waits for: the operations in flight, its join, and `under_way`. Warns of
  // delays. Returns why the epoch ends when a wait is beyond the limit or will never end.
  std::optional<EpochEnd> Check(TimePoint now, std::vector<Wait> under_way);

  // What others say: kAbsent, kAsked, kAnswered, kRefused.
  void On(const Negotiation::Event& event);
  // This rank has joined and is of use to the others, so the wait for its join begins anew.
  void OnInvited();

 private:
  std::vector<Wait> Waits(TimePoint now);
  void AddJoin(TimePoint now, std::vector<Wait>* waits) const;
  void NameMissing(std::vector<Wait>* waits) const;
  std::vector<int> WhoIsMissing(const Operation& operation) const;
  bool AnotherTells(const Operation& operation, const std::vector<int>& missing) const;
  void LearnWhoIsAbsent(TimePoint now);
  void OnAbsent(const std::vector<Absence>& absences);
  std::vector<Absence> NeededFor() const;
  bool KnowsWhoNeedsUs() const;
  std::optional<EpochEnd> LookForDeadlock(const std::vector<Wait>& waits, std::vector<Absence>* needed);
  void Tell(const std::vector<Wait>& waits, const std::vector<Absence>& needed, TimePoint now);
  void Warn(const Delay& delay, const std::vector<Absence>& needed) const;
  EpochEnd GiveUp(const Wait& wait, const std::vector<Absence>& needed, bool is_deadlock) const;
  std::string NamesOf(const std::vector<int>& ranks, const std::string& reason) const;
  std::string PlacesSince(TimePoint begin) const;
  void Answer(int asker);
  void OnAnswer(int rank, const Whereabouts& where);
  OperationPtr Joined() const;

  const World* const world_;
  Operations* const operations_;
  const Coordinator* const coordinator_;
  const int64_t timeout_ms_;   // of a wait; 0 or less: there is no limit
  const int64_t patience_ms_;  // with a wait, before anybody is asked

  Delays delays_;
  DeadlockDetector deadlocks_;
  TimePoint looked_{};  // when it was last looked for a deadlock

  // What rank 0 has said.
  TimePoint asked_whom_{};                          // when it was last asked
  std::map<std::string, std::vector<int>> absent_;  // by title: who has not come
  std::vector<Absence> needed_;                     // what others have come to and this rank has not
  uint64_t needed_entered_ = 0;                     // Operations::entered when rank 0 was asked for needed_
  std::deque<uint64_t> whom_entered_;               // likewise, for each answer to come

  // Where ranks are.
  Whereabouts where_;       // what this rank said when it was last asked
  TimePoint answered_{};    // when it last looked for that
  std::set<int> reported_;  // whose stacks are to be shown, once they are here
  struct Place {
    std::string frame;  // the innermost of the user's
    TimePoint seen;
  };
  std::map<int, Place> places_;  // where ranks that this one waited for said that they were
};

}  // namespace farandole
