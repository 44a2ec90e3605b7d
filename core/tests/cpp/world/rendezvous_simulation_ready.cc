// Ranks that are ready: the evidence of other ranks' ends, late and in any order, and the engines' conclusions. The
// abort word of the node counts first, then the result of Liveness over all evidence. A rank that blames another tells
// its node by the abort word and all others through rank 0, and ends soon after. A rank that only sees closed
// connections asks rank 0 first, unless they are those of rank 0.
#include <algorithm>

#include "world/rendezvous_simulation.h"

namespace farandole {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kLongestLife{5};            // of a process that has given up
constexpr milliseconds kConfirmationTimeout{500};  // as FailureMonitor has it
// The delay of evidence, of a rank's report to rank 0 and of rank 0's message to all, together less than
// Liveness::kSuspicionTimeout.
constexpr milliseconds kSlowSign{25};
constexpr int kPercentSlow = 10;

}  // namespace

TimePoint::duration RendezvousSimulation::EvidenceDelay() {
  const auto usual = microseconds(100 + random_() % 3'000);
  return Chance(kPercentSlow) ? usual + microseconds(random_() % microseconds(kSlowSign).count()) : usual;
}

// The process of a rank ends, and so do its connections.
void RendezvousSimulation::ShowEnd(int r) {
  rank(r).ends = true;
  for (int other = 0; other < size_; ++other) {
    if (other == r) continue;
    ShowEvidence(r, other, &Rank::closed);
    ShowEvidence(r, other, &Rank::ended);
  }
}

// A rank gives up because of another. It sets the abort word, which the ready ranks of its node read.
void RendezvousSimulation::EndLater(int r, int culprit) {
  if (rank(r).segment != 0 && planted_ != Planted::kSilentEnd) abort_words_.emplace(rank(r).segment, culprit);
  At(now_ + microseconds(random_() % microseconds(kLongestLife).count()), r, [this, r] { ShowEnd(r); });
}

// Ranks of the same node see the end of the process, other ranks the end of its connections. Rank 0 has a connection
// with every rank.
void RendezvousSimulation::ShowEvidence(int from, int to, std::vector<int> Rank::* evidence) {
  At(now_ + EvidenceDelay(), to, [this, from, to, evidence] {
    Rank& each = rank(to);
    const bool together = each.segment != 0 && each.segment == rank(from).segment;
    const bool connected = each.linked.count(from) > 0 || from == 0 || to == 0;
    if (evidence == &Rank::ended ? !together : !connected) return;
    (each.*evidence).push_back(from);
    if (each.done) Look(to);
  });
}

void RendezvousSimulation::Look(int r) {
  Rank& each = rank(r);
  if (!each.done || each.blamed) return;
  // Evidence from before the rank was ready is seen in one pass, in no order.
  std::shuffle(each.closed.begin(), each.closed.end(), random_);
  for (int other : each.closed) each.liveness.OnConnectionClosed(other, now_);
  for (int other : each.ended) each.liveness.OnProcessEnded(other);
  if (!each.closed.empty()) At(now_ + Liveness::kSuspicionTimeout, r, [this, r] { Look(r); });
  each.closed.clear();
  each.ended.clear();
  const auto word = abort_words_.find(each.segment);
  if (word != abort_words_.end()) return Blame(r, word->second);
  const auto failed = each.liveness.FindFailedRank(now_);
  if (!failed) return;
  ReportBlame(r, failed->rank);
  const bool is_guessed = failed->evidence == Liveness::Evidence::kConnectionClosed;
  if (!is_guessed || r == 0 || failed->rank == 0) return Blame(r, failed->rank);
  At(now_ + kConfirmationTimeout, r, [this, r, culprit = failed->rank] { Blame(r, culprit); });
}

void RendezvousSimulation::Blame(int r, int culprit) {
  Rank& each = rank(r);
  if (each.blamed) return;
  each.blamed = culprit;
  for (int other = 0; other < size_; ++other) {
    if (other != r && rank(other).segment == each.segment)
      At(now_ + EvidenceDelay(), other, [this, other] { Look(other); });
  }
  if (r == 0) ReportBlame(0, culprit);
  EndLater(r, culprit);
}

// To all, through rank 0.
void RendezvousSimulation::ReportBlame(int r, int culprit) {
  if (r != 0) {
    return At(now_ + EvidenceDelay(), 0, [this, culprit] {
      if (rank(0).done && !rank(0).ends) Blame(0, culprit);
    });
  }
  for (int other = 1; other < size_; ++other) {
    At(Arrival(0, other), other, [this, other, culprit] {
      if (rank(other).done) Blame(other, culprit);
    });
  }
}

}  // namespace farandole
