// Who lets operations wait, and what of that is news: a rank is spoken of once, however many operations wait for it.
//
// Pure: operations, ranks and times in, what is to be said out. Driver only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/clock.h"
#include "engine/operation.h"

namespace farandole {

// Instead of ranks, in Wait::missing.
inline constexpr int kUnknownRanks = -1;  // rank 0 has not said who
inline constexpr int kOwnDevice = -2;     // the operation's input is not computed
inline constexpr int kOwnLibrary = -3;    // only the back end can say what it is

struct Wait {
  OperationPtr operation;
  int64_t waited_ms = 0;
  std::vector<int> missing;
  bool is_told_by_another = false;  // a rank of this machine that waits for the same
  bool is_under_way = false;        // all have come, and who is missing goes on without its program
  bool is_mutual = false;           // one of the missing may wait for this rank
  std::string reason{};             // for kOwnDevice and kOwnLibrary: what is missing, "the library, which ...,"
};

// All that the same ranks let wait.
struct Delay {
  std::vector<int> ranks;  // ascending
  OperationPtr first;      // has waited longest
  int64_t waited_ms = 0;   // as long as this
  size_t operations = 0;
  bool is_ours_to_tell = false;  // of one of them at least
  bool is_mutual = false;        // one of them at least
  std::string reason;            // of the first, see Wait
};

class Delays {
 public:
  explicit Delays(int64_t warn_after_ms) : warn_after_ms_(warn_after_ms) {}
  // Of ranks that are waited for longer than the limit, or a little longer where an answer may tell more: those that
  // were not returned in the last minute, or were not late meanwhile; and those that have become ours to tell of.
  std::vector<Delay> News(const std::vector<Wait>& waits, TimePoint now);

 private:
  const int64_t warn_after_ms_;
  struct Told {
    TimePoint when;
    bool ours;
  };
  std::map<int, Told> told_;  // of those that are late, by rank
};

// "allreduce 'w'" or "120 operations, the first of them allreduce 'w',"
std::string TitleOf(const Delay& delay);

}  // namespace farandole
