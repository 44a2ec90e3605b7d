#include "engine/delays.h"

#include <algorithm>

namespace farandole {
namespace {

constexpr int64_t kWarnAgainMs = 60'000;
// How long rank 0 has to say who is missing, before we say that we do not know. As long has a rank that waits for this
// one to say that it waits for nothing else: the error that then ends the job tells all that a warning would.
constexpr int64_t kAnswerMs = 3000;

std::map<int, Delay> ByRank(const std::vector<Wait>& waits) {
  std::map<int, Delay> by_rank;
  for (const Wait& wait : waits) {
    for (int rank : wait.missing) {
      Delay& delay = by_rank[rank];
      ++delay.operations;
      delay.is_ours_to_tell = delay.is_ours_to_tell || !wait.is_told_by_another;
      delay.is_mutual = delay.is_mutual || wait.is_mutual;
      if (delay.first && delay.waited_ms >= wait.waited_ms) continue;
      delay.first = wait.operation;
      delay.waited_ms = wait.waited_ms;
      delay.reason = wait.reason;
    }
  }
  return by_rank;
}

void Merge(int rank, const Delay& of_rank, std::vector<Delay>* delays) {
  const auto same = std::find_if(delays->begin(), delays->end(), [&](const Delay& delay) {
    return delay.first == of_rank.first && delay.operations == of_rank.operations &&
           delay.is_ours_to_tell == of_rank.is_ours_to_tell;
  });
  if (same != delays->end()) return same->ranks.push_back(rank);
  delays->push_back(of_rank);
  delays->back().ranks.push_back(rank);
}

}  // namespace

std::vector<Delay> Delays::News(const std::vector<Wait>& waits, TimePoint now) {
  std::vector<Delay> news;
  std::map<int, Told> told;
  for (const auto& [rank, delay] : ByRank(waits)) {
    const int64_t limit_ms = warn_after_ms_ + (rank == kUnknownRanks || delay.is_mutual ? kAnswerMs : 0);
    if (delay.waited_ms < limit_ms) continue;
    const auto before = told_.find(rank);
    const bool known = before != told_.end() && MillisecondsBetween(before->second.when, now) < kWarnAgainMs &&
                       (before->second.ours || !delay.is_ours_to_tell);
    told[rank] = known ? before->second : Told{now, delay.is_ours_to_tell};
    if (!known) Merge(rank, delay, &news);
  }
  told_ = std::move(told);
  return news;
}

std::string TitleOf(const Delay& delay) {
  const std::string first = delay.first->Title();
  if (delay.operations == 1) return first;
  return std::to_string(delay.operations) + " operations, the first of them " + first + ",";
}

}  // namespace farandole
