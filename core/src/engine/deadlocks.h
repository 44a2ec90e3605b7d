// Finds ranks that wait for each other for ever.
//
// How this rank, A, finds that B waits for A and for nothing else:
//
//   A  sees that B has come to X, which lacks A      then asks B, and notes X
//   B  answers: all my threads wait, and only for X
//   A  has come to nothing meanwhile                 so X lacks it still, and B waits for ever
//
// If everything that A's own threads wait for lacks such a B, A waits for ever, too. A rank in doubt finds nothing, and
// then the wait's limit ends the epoch.
//
// StallInspector owns the detector and calls it with the ProgressLock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "engine/operations.h"

namespace farandole {

// Instead of ranks, in Wait::missing.
inline constexpr int kUnknownRanks = -1;  // rank 0 has not said which
inline constexpr int kOwnDevice = -2;     // the operation's input is not computed
inline constexpr int kOwnLibrary = -3;    // only the backend can say what it is

struct Wait {
  OperationPtr operation;
  int64_t waited_ms = 0;
  std::vector<int> missing;
  bool is_told_by_another = false;  // a rank of this machine that waits for the same warns of it
  bool is_under_way = false;        // all have arrived, and those that are missing do not need their programs
  bool is_mutual = false;           // a missing rank may wait for this one
  std::string reason{};             // for kOwnDevice and kOwnLibrary: what is missing, "the library, which ...,"
};

class DeadlockDetector {
 public:
  explicit DeadlockDetector(Operations* operations) : operations_(operations) {}

  // Returns the titles of the operations that all threads of the program wait for, by the stacks of this process; none
  // where a thread may still call something.
  std::vector<std::string> WaitsOnlyFor(const std::string& stacks) const;

  // Asks ranks where they are. All such questions go through here, since answers come in the order of the questions.
  void Ask(const std::vector<int>& ranks) { Ask(ranks, {}); }
  // Asks a few missing ranks that need this one whether their programs wait for nothing else.
  void AskThoseThatNeedUs(const std::vector<Wait>& waits, const std::vector<Absence>& needed);
  // Handles the answer of a rank.
  void OnAnswer(int rank, const std::vector<std::string>& waits_only_for);

  // True when a deadlock is possible: a thread waits here, and no thread is unknown to this library.
  bool IsPossible() const { return !operations_->blocked.empty() && !operations_->has_native_callers; }
  // Returns a wait that will never end, with the rank in `missing` that waits for this one only.
  std::optional<Wait> Find(const std::vector<Wait>& waits) const;

 private:
  using Titles = std::set<std::string>;
  void Ask(const std::vector<int>& ranks, const std::map<int, Titles>& needed);
  uint64_t Entered() const;
  int StuckAmong(const std::vector<int>& ranks, uint64_t entered) const;

  Operations* const operations_;
  struct Question {
    uint64_t entered;  // Operations::entered when it was asked
    Titles titles;     // operations that the rank had arrived at and this one had not
  };
  std::map<int, std::deque<Question>> questions_;  // by rank, for each answer to come
  struct Stuck {
    uint64_t entered;  // the answer holds while Operations::entered is this
    TimePoint said;
  };
  std::map<int, Stuck> stuck_;  // by rank: ranks that wait for this one only
};

// Marks the waits for ranks that need this one, or may need it: their answers decide whether it is a deadlock.
void MarkMutual(const std::vector<Absence>& needed, bool is_known, std::vector<Wait>* waits);

}  // namespace farandole
