#include "world/liveness.h"

#include <algorithm>

namespace farandole {
namespace {

// Rank 0 tells the others why it ends. As the lowest rank it is also the first in ended_.
constexpr int kCoordinatorRank = 0;

}  // namespace

// The end of a process is the stronger evidence, so it replaces closed connections of that rank.
void Liveness::OnProcessEnded(int rank) {
  if (IsGoing(rank) || goodbyes_.count(rank) > 0) return;
  closed_.erase(rank);
  ended_.insert(rank);
}

void Liveness::OnConnectionClosed(int rank, TimePoint now) {
  if (goodbyes_.count(rank) == 0) Suspect(rank, now);
}

void Liveness::OnControlClosed(int rank, TimePoint now) {
  control_closed_.insert(rank);
  Suspect(rank, now);
}

// Only the first evidence against each rank counts, since the rank that fell silent first is to blame.
void Liveness::Suspect(int rank, TimePoint now) {
  if (!IsGoing(rank) && ended_.count(rank) == 0) closed_.emplace(rank, now);
}

void Liveness::OnGoodbye(int rank) {
  goodbyes_.insert(rank);
  ended_.erase(rank);
  // A closed control connection remains evidence, since LEAVING should have arrived on it.
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

std::optional<Liveness::FailedRank> Liveness::FindFailedRank(TimePoint now) {
  FailedRank failed;
  if (!ended_.empty()) {
    failed = {*ended_.begin(), Evidence::kProcessEnded};
    ended_.erase(failed.rank);
  } else {
    auto suspect = closed_.find(kCoordinatorRank);
    if (suspect == closed_.end()) {
      suspect = std::min_element(closed_.begin(), closed_.end(),
                                 [](const auto& a, const auto& b) { return a.second < b.second; });
    }
    if (suspect == closed_.end() || now < suspect->second + kSuspicionTimeout) return std::nullopt;
    failed = {suspect->first, Evidence::kConnectionClosed};
    closed_.erase(suspect);
  }
  return failed;
}

bool Liveness::HasLeftForLong(TimePoint now) const { return left_since_ && now >= *left_since_ + kSuspicionTimeout; }

}  // namespace farandole
