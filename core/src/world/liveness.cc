#include "world/liveness.h"

#include <algorithm>

namespace farandole {
namespace {

constexpr int kTeller = 0;  // the rank that tells others why it ends; the least, so the first of those that have ended

}  // namespace

void Liveness::OnProcessEnded(int rank) {
  if (IsGoing(rank) || farewells_.count(rank) > 0) return;
  closed_.erase(rank);
  ended_.insert(rank);
}

void Liveness::OnConnectionClosed(int rank, TimePoint now) {
  if (farewells_.count(rank) == 0) Suspect(rank, now);
}

void Liveness::OnControlClosed(int rank, TimePoint now) {
  control_closed_.insert(rank);
  Suspect(rank, now);
}

// The first sign counts: it says who fell silent before whom.
void Liveness::Suspect(int rank, TimePoint now) {
  if (!IsGoing(rank) && ended_.count(rank) == 0) closed_.emplace(rank, now);
}

void Liveness::OnFarewell(int rank) {
  farewells_.insert(rank);
  ended_.erase(rank);
  if (control_closed_.count(rank) == 0) closed_.erase(rank);
}

void Liveness::OnLeaving(int rank) {
  leaving_.insert(rank);
  ended_.erase(rank);
  closed_.erase(rank);
}

void Liveness::OnLeft(int rank, TimePoint now) {
  OnLeaving(rank);
  left_.insert(rank);
  if (!left_since_) left_since_ = now;
}

std::optional<Liveness::Verdict> Liveness::Judge(TimePoint now) {
  Verdict verdict;
  if (!ended_.empty()) {
    verdict = {*ended_.begin(), Sign::kProcessEnded};
    ended_.erase(verdict.rank);
  } else {
    auto blamed = closed_.find(kTeller);
    if (blamed == closed_.end()) {
      blamed = std::min_element(closed_.begin(), closed_.end(),
                                [](const auto& a, const auto& b) { return a.second < b.second; });
    }
    if (blamed == closed_.end() || now < blamed->second + kSuspicion) return std::nullopt;
    verdict = {blamed->first, Sign::kConnectionClosed};
    closed_.erase(blamed);
  }
  return verdict;
}

bool Liveness::WaitingIsVain(TimePoint now) const { return left_since_ && now >= *left_since_ + kSuspicion; }

}  // namespace farandole
