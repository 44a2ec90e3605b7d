#include "engine/deadlocks.h"

#include <algorithm>
#include <chrono>

#include "engine/stacks.h"

namespace farandole {
namespace {

constexpr size_t kMostAsked = 2;  // at a time: one rank that waits for this one only is enough
// How long an answer holds: a signal handler may free the rank later.
constexpr std::chrono::milliseconds kAnswerHolds{3000};
constexpr int kNobody = -1;

}  // namespace

uint64_t DeadlockDetector::Entered() const {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  return operations_->entered;
}

// A rank that has joined takes part in everything by itself, so no rank waits for it for ever.
std::vector<std::string> DeadlockDetector::WaitsOnlyFor(const std::string& stacks) const {
  const std::map<ThreadId, OperationPtr> awaited = operations_->blocked.operations();
  if (awaited.empty() || operations_->has_native_callers || operations_->has_deferred) return {};
  std::set<ThreadId> threads;
  std::vector<std::string> titles;
  for (const auto& [thread, operation] : awaited) {
    if (ConcernsWholeWorld(operation->request.kind)) return {};
    threads.insert(thread);
    titles.push_back(operation->Title());
  }
  return NoOthersMayCall(stacks, threads) ? titles : std::vector<std::string>();
}

void DeadlockDetector::Ask(const std::vector<int>& ranks, const std::map<int, Titles>& needed) {
  std::vector<int> asked;  // without the constants that stand in for ranks
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(asked), [](int rank) { return rank >= 0; });
  if (asked.empty()) return;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  for (int rank : asked) {
    const auto known = needed.find(rank);
    questions_[rank].push_back({operations_->entered, known == needed.end() ? Titles() : known->second});
  }
  operations_->negotiation.outbox().Ask(asked);
}

// Only a rank that needs this one can be part of a deadlock with it.
void DeadlockDetector::AskThoseThatNeedUs(const std::vector<Wait>& waits, const std::vector<Absence>& needed) {
  std::map<int, Titles> by_rank;
  for (const Absence& each : needed) {
    for (int64_t rank : each.here) by_rank[static_cast<int>(rank)].insert(each.title);
  }
  std::set<int> ranks;
  for (const Wait& wait : waits) {
    for (int rank : wait.missing) {
      if (ranks.size() < kMostAsked && by_rank.count(rank) > 0) ranks.insert(rank);
    }
  }
  Ask({ranks.begin(), ranks.end()}, by_rank);
}

// An answer counts if this rank has submitted nothing since it asked: then the other still needs what it needed.
void DeadlockDetector::OnAnswer(int rank, const std::vector<std::string>& waits_only_for) {
  std::deque<Question>& asked = questions_[rank];
  if (asked.empty()) return;
  const Question question = std::move(asked.front());
  asked.pop_front();
  const auto needs_us = [&question](const std::string& title) { return question.titles.count(title) > 0; };
  const bool is_stuck = !waits_only_for.empty() && question.entered == Entered() &&
                        std::all_of(waits_only_for.begin(), waits_only_for.end(), needs_us);
  if (is_stuck) stuck_[rank] = {question.entered, Now()};
}

// Returns a rank that is known to wait for this one only, or kNobody.
int DeadlockDetector::StuckAmong(const std::vector<int>& ranks, uint64_t entered) const {
  const TimePoint oldest = Now() - kAnswerHolds;
  for (int rank : ranks) {
    const auto stuck = stuck_.find(rank);
    if (stuck != stuck_.end() && stuck->second.entered == entered && stuck->second.said >= oldest) return rank;
  }
  return kNobody;
}

// Looks at the stacks last, so that they show whatever a thread of this rank does meanwhile.
std::optional<Wait> DeadlockDetector::Find(const std::vector<Wait>& waits) const {
  const uint64_t entered = Entered();
  std::map<std::string, Wait> lost;
  for (const Wait& wait : waits) {
    // A backend ends what is under way, and the holders of the ProgressLocks end eager operations, whatever the
    // programs do.
    if (wait.is_under_way || wait.operation->admission.inbox) continue;
    const int stuck = StuckAmong(wait.missing, entered);
    if (stuck == kNobody) continue;
    Wait& found = lost[wait.operation->Title()];
    found = wait;
    found.missing = {stuck};
  }
  if (lost.empty() || operations_->blocked.empty()) return std::nullopt;
  const auto is_lost = [&](const std::string& title) { return lost.count(title) > 0; };
  const std::vector<std::string> titles = WaitsOnlyFor(StacksOfThisProcess());
  if (titles.empty() || !std::all_of(titles.begin(), titles.end(), is_lost)) return std::nullopt;
  return lost[titles[0]];
}

// A wait is mutual where a rank that is missing needs this one, or may need it, as long as that is not known.
void MarkMutual(const std::vector<Absence>& needed, bool is_known, std::vector<Wait>* waits) {
  std::set<int64_t> needing;
  for (const Absence& each : needed) needing.insert(each.here.begin(), each.here.end());
  for (Wait& wait : *waits) {
    const bool needs_us =
        std::any_of(wait.missing.begin(), wait.missing.end(), [&needing](int rank) { return needing.count(rank) > 0; });
    wait.is_mutual = !wait.is_under_way && (needs_us || !is_known);
  }
}

}  // namespace farandole
