// ProgressLoop: ranks that wait for each other for ever.
//
// This rank, A, is about to find that B waits for it, and for nothing else:
//
//   A  sees that B has come to X, which lacks A      then asks B, and notes X
//   B  answers: all my threads wait, and only for X
//   A  has come to nothing meanwhile                 so X lacks it still, and B waits for ever
//
// If everything that A's own threads wait for lacks such a B, A waits for ever, too.
#include <algorithm>
#include <chrono>

#include "engine/progress_loop.h"
#include "engine/stacks.h"

namespace farandole {
namespace {

constexpr size_t kMostAsked = 2;                      // at a time, whether they wait for this rank only
constexpr std::chrono::milliseconds kBelieved{3000};  // their answer

}  // namespace

uint64_t ProgressLoop::Entered() const {
  std::lock_guard<std::mutex> lock(table_->mutex);
  return table_->entered;
}

// Titles of what all threads of the program wait for; none where one may still call something. A rank that has joined
// comes to everything by itself.
std::vector<std::string> ProgressLoop::WaitsOnlyFor(const std::string& stacks) const {
  const std::map<ThreadId, OperationPtr> awaited = table_->blocked.operations();
  if (awaited.empty() || table_->has_native_callers || table_->has_deferred) return {};
  std::set<ThreadId> threads;
  std::vector<std::string> titles;
  for (const auto& [thread, operation] : awaited) {
    if (ConcernsWholeWorld(operation->request.kind)) return {};
    threads.insert(thread);
    titles.push_back(operation->Title());
  }
  return NoOthersMayCall(stacks, threads) ? titles : std::vector<std::string>();
}

// An answer of `rank`; answers come in the order of the questions.
void ProgressLoop::NoteWhoIsStuck(int rank, const std::vector<std::string>& waits_only_for) {
  std::deque<Sought>& asked = sought_[rank];
  if (asked.empty()) return;
  const Sought sought = std::move(asked.front());
  asked.pop_front();
  const auto needs_us = [&sought](const std::string& title) { return sought.titles.count(title) > 0; };
  const bool is_stuck = !waits_only_for.empty() && sought.entered == Entered() &&
                        std::all_of(waits_only_for.begin(), waits_only_for.end(), needs_us);
  if (is_stuck) stuck_[rank] = {sought.entered, Now()};
}

// One of the waits, and in `missing` the rank that waits for this one only; else null.
const Wait* ProgressLoop::FindDeadlock(std::vector<Wait>* waits) const {
  const uint64_t entered = Entered();
  const TimePoint oldest = Now() - kBelieved;  // a handler of a signal may free it
  std::map<std::string, const Wait*> lost;
  for (Wait& wait : *waits) {
    // A back end ends the one and the ranks' drivers end the other, whatever the programs do.
    if (wait.is_under_way || wait.operation->plan.inbox) continue;
    for (int rank : wait.missing) {
      const auto stuck = stuck_.find(rank);
      if (stuck == stuck_.end() || stuck->second.entered != entered || stuck->second.said < oldest) continue;
      wait.missing = {rank};
      lost[wait.operation->Title()] = &wait;
      break;
    }
  }
  if (lost.empty() || table_->blocked.empty()) return nullptr;
  const auto is_lost = [&](const std::string& title) { return lost.count(title) > 0; };
  const std::vector<std::string> titles = WaitsOnlyFor(StacksOfThisProcess());
  return !titles.empty() && std::all_of(titles.begin(), titles.end(), is_lost) ? lost[titles[0]] : nullptr;
}

// Asks a few ranks that wait for this one whether their programs do nothing else: one such rank is enough.
void ProgressLoop::AskThoseThatNeedUs(const std::vector<Wait>& waits) {
  if (table_->blocked.empty() || table_->has_native_callers) return;
  const uint64_t entered = Entered();
  const bool is_known = control_.coordinator() != nullptr || needed_entered_ == entered;  // what rank 0 has said
  if (!is_known) needed_.clear();
  std::map<int, std::set<std::string>> needed;
  for (const Absence& each : NeededFor()) {
    for (int64_t rank : each.here) needed[static_cast<int>(rank)].insert(each.title);
  }
  std::set<int> ranks;
  for (const Wait& wait : waits) {
    for (int rank : wait.missing) {
      if (ranks.size() < kMostAsked && needed.count(rank) > 0) ranks.insert(rank);
    }
  }
  Ask({ranks.begin(), ranks.end()}, needed);
}

// Marks the waits for ranks that wait for this one, or may: what they say decides whether it is a deadlock.
void ProgressLoop::MarkMutual(std::vector<Wait>* waits) const {
  if (table_->blocked.empty() || table_->has_native_callers) return;
  const bool is_known = control_.coordinator() != nullptr || needed_entered_ == Entered();
  std::set<int64_t> needing;
  for (const Absence& each : NeededFor()) needing.insert(each.here.begin(), each.here.end());
  for (Wait& wait : *waits) {
    const bool needs_us =
        std::any_of(wait.missing.begin(), wait.missing.end(), [&needing](int rank) { return needing.count(rank) > 0; });
    wait.is_mutual = !wait.is_under_way && (needs_us || !is_known);
  }
}

}  // namespace farandole
