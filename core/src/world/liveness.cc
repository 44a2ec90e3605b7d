#include "world/liveness.h"

#include <algorithm>

namespace farandole {

void Liveness::OnProcessEnded(int rank) {
  closed_.erase(rank);
  if (!HasLeft(rank)) ended_.insert(rank);
}

void Liveness::OnConnectionClosed(int rank, TimePoint now) {
  // The first sign counts: it says who fell silent before whom.
  if (!HasLeft(rank) && ended_.count(rank) == 0) closed_.emplace(rank, now);
}

void Liveness::OnLeft(int rank, TimePoint now) {
  left_.insert(rank);
  ended_.erase(rank);
  closed_.erase(rank);
  if (!left_since_) left_since_ = now;
}

std::optional<Liveness::Verdict> Liveness::Judge(TimePoint now) {
  Verdict verdict;
  if (!ended_.empty()) {
    verdict = {*ended_.begin(), Sign::kProcessEnded};
    ended_.erase(verdict.rank);
  } else {
    const auto first = std::min_element(closed_.begin(), closed_.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    if (first == closed_.end() || now < first->second + kSuspicion) return std::nullopt;
    verdict = {first->first, Sign::kConnectionClosed};
    closed_.erase(first);
  }
  return verdict;
}

bool Liveness::WaitingIsVain(TimePoint now) const { return left_since_ && now >= *left_since_ + kSuspicion; }

}  // namespace farandole
