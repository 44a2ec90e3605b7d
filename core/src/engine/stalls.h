// Finds what this rank waits for and since when, asks rank 0 which ranks are missing, and reports to the diagnosis,
// which decides what to warn of (diagnosis.h). Ends the epoch if a wait is beyond the limit, if the diagnosis has found
// a deadlock, or if two ranks wait for each other in calls that exclude each other. If the diagnosis does not respond,
// the inspector writes a simpler warning itself.
//
// Thread safety: the holder of the ProgressLock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/config.h"
#include "controller/coordinator.h"
#include "engine/early_sums.h"
#include "engine/failures.h"
#include "engine/operations.h"
#include "world/world.h"

namespace farandole {

// In Wait::missing, instead of ranks.
inline constexpr int kUnknownRanks = -1;  // rank 0 has not named them
inline constexpr int kOwnDevice = -2;     // the operation's input is not computed yet
inline constexpr int kOwnLibrary = -3;    // only the backend knows

struct Wait {
  OperationPtr operation;
  int64_t waited_ms = 0;
  std::vector<int> missing;
  bool is_reported_by_peer = false;  // another rank of this node, which waits for the same, reports it
  bool is_under_way = false;         // all ranks have arrived; it ends without their programs
  std::string reason{};              // for kOwnDevice and kOwnLibrary: what is missing, "the library, which ...,"
};

class StallInspector {
 public:
  // coordinator: on rank 0, which knows the absent ranks; null on other ranks.
  StallInspector(Operations* operations, const EarlySums* early_sums, const Coordinator* coordinator,
                 const Settings& settings);

  // Checks everything that this rank waits for: the operations in flight, its join, and `under_way`. Also sends what
  // the diagnosis has asked for. Returns the reason to end the epoch, if there is one.
  std::optional<EpochEnd> Check(TimePoint now, std::vector<Wait> under_way);

  // Handles the events kAsked and kAnswered.
  void On(const Negotiation::Event& event);
  // This rank has joined and takes part in an operation, so its join starts to wait anew.
  void OnInvited();

 private:
  std::vector<Wait> Waits(TimePoint now);
  int64_t StuckAfterMs(const Operation& operation) const;
  void AddJoin(TimePoint now, std::vector<Wait>* waits) const;
  OperationPtr AnnouncedJoin() const;

  void FillInMissing(std::vector<Wait>* waits) const;
  void NoteAwaited(const std::vector<Wait>& waits) const;
  std::vector<int> MissingRanks(const Operation& operation) const;
  bool IsReportedByPeer(const Operation& operation, const std::vector<int>& missing) const;
  void UpdateAbsences(TimePoint now);
  void OnAbsent(const std::vector<Absence>& absences);

  struct Needed {
    std::vector<Absence> operations;
    uint64_t entered = 0;   // Operations::entered at that time
    bool is_known = false;  // they are complete as of `entered`
  };
  Needed NeededFor() const;
  std::optional<EpochEnd> FindExcluded(TimePoint now);
  bool IsMissingAt(const ExcludedCalls& calls, int rank, uint64_t suspected) const;
  uint64_t QuestionsAsked() const { return answers_ + entered_at_question_.size(); }

  void SendRequests(TimePoint now);
  void Report(const std::vector<Wait>& waits, Needed needed, bool is_overdue, TimePoint now);
  std::map<const Wait*, size_t> GroupWaits(const std::vector<Wait>& waits) const;
  WaitFacts FactsOf(const Wait& wait) const;
  std::optional<EpochEnd> TakeDecision(bool is_overdue);
  void Warn(const Wait& wait, TimePoint now);
  EpochEnd DeadlineEnd(const Wait& wait, const std::vector<Absence>& needed) const;
  std::string NamesOf(const std::vector<int>& ranks, const std::string& reason) const;
  void ClearReports();

  const World* const world_;
  Operations* const operations_;
  const EarlySums* const early_sums_;
  const Coordinator* const coordinator_;
  const int64_t timeout_ms_;  // of a wait; 0 or less: no limit
  const int64_t warn_after_ms_;
  const int64_t patience_ms_;  // how long a wait may take before other ranks are asked

  // TimePoint(): never, or not now.
  TimePoint reported_{};  // the last report of waits to the diagnosis
  TimePoint overdue_{};   // since when a wait is beyond the limit
  TimePoint warned_{};    // the last warning without the diagnosis

  // Answers of rank 0.
  TimePoint absences_asked_at_{};             // when it was last asked
  std::map<std::string, Absence> absent_;     // by title
  std::vector<Absence> needed_;               // operations at which others have arrived and this rank has not
  uint64_t needed_entered_ = 0;               // Operations::entered when rank 0 was asked for needed_
  std::deque<uint64_t> entered_at_question_;  // likewise, for each answer still to come
  uint64_t answers_ = 0;                      // how many have come

  // By number of the excluded calls and a rank that waits in one of them: QuestionsAsked when it was first seen there.
  std::map<std::pair<int64_t, int>, uint64_t> suspected_;
};

}  // namespace farandole
