// Finds ranks that are late, warns of them, and decides when this rank gives up.
//
//   Wait            an operation of this rank, and the ranks that it waits for
//   Delay           all operations that wait for the same ranks; the content of a warning
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

// All operations that wait for the same ranks.
struct Delay {
  std::vector<int> ranks;  // ascending
  OperationPtr first;      // has waited longest
  int64_t waited_ms = 0;   // how long
  size_t operations = 0;
  bool is_ours_to_tell = false;  // at least one of them
  bool is_mutual = false;        // one of them at least
  std::string reason;            // of the first, see Wait
};

// Reports a rank once, however many operations wait for it.
class Delays {
 public:
  explicit Delays(int64_t warn_after_ms) : warn_after_ms_(warn_after_ms) {}
  // Returns the delays of ranks that are late beyond the limit, or a little later where an answer may tell more. Leaves
  // out ranks that were reported in the last minute and have been late since, unless this rank has meanwhile become the
  // one to report them.
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
  // coordinator: on rank 0, to know which ranks are absent; null elsewhere.
  StallInspector(const World* world, Operations* operations, const Coordinator* coordinator, const Settings& settings);

  // Looks at everything that this rank waits for: the operations in flight, its join, and `under_way`. Warns of
  // delays. Returns why the epoch ends when a wait is beyond the limit or will never end.
  std::optional<EpochEnd> Check(TimePoint now, std::vector<Wait> under_way);

  // Handles the events kAbsent, kAsked, kAnswered and kRefused.
  void On(const Negotiation::Event& event);
  // This rank has joined and takes part in an operation, so the wait for its join begins anew.
  void OnInvited();

 private:
  std::vector<Wait> Waits(TimePoint now);
  int64_t StuckAfterMs(const Operation& operation) const;
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
  const int64_t patience_ms_;  // how long a wait may take before other ranks are asked

  Delays delays_;
  DeadlockDetector deadlocks_;
  TimePoint looked_{};  // when this rank last looked for a deadlock

  // Answers of rank 0.
  TimePoint asked_whom_{};                          // when it was last asked
  std::map<std::string, std::vector<int>> absent_;  // by title: the ranks that are missing
  std::vector<Absence> needed_;                     // operations at which others have arrived and this rank has not
  uint64_t needed_entered_ = 0;                     // Operations::entered when rank 0 was asked for needed_
  std::deque<uint64_t> whom_entered_;               // likewise, for each answer still to come

  // Where ranks are.
  Whereabouts where_;       // this rank's last answer
  TimePoint answered_{};    // when that was last found out
  std::set<int> reported_;  // whose stacks are shown when they arrive
  struct Place {
    std::string frame;  // the innermost frame of the user's program
    TimePoint seen;
  };
  std::map<int, Place> places_;  // by rank: its last answer
};

}  // namespace farandole
