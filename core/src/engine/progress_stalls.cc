// ProgressLoop: ranks that do not come, and what is said of them.
#include <algorithm>
#include <cstdio>

#include "common/log.h"
#include "engine/progress_loop.h"
#include "engine/stacks.h"

namespace farandole {
namespace {

constexpr int64_t kStuckMs = 100;  // then an unnamed operation asks whether others mean something else
constexpr int64_t kAskAgainMs = 1000;
constexpr size_t kMostNames = 4;  // in a message

std::string Seconds(int64_t milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", static_cast<double>(milliseconds) / 1000);
  return text;
}

}  // namespace

void ProgressLoop::CheckDelays(TimePoint now) {
  std::vector<Wait> waits = Waits(now);
  work_.AddStandstill(now, &waits);
  AddJoin(now, &waits);
  const auto longest = std::max_element(waits.begin(), waits.end(),
                                        [](const Wait& a, const Wait& b) { return a.waited_ms < b.waited_ms; });
  const bool never = settings_.timeout_ms <= 0;
  const int64_t patience_ms =
      never ? settings_.warn_after_ms : std::min(settings_.warn_after_ms, settings_.timeout_ms / 2);
  if (longest == waits.end() || longest->waited_ms < patience_ms) {
    absent_.clear();
    delays_.News({}, now);
    return;
  }
  LearnWhoIsAbsent(now);
  for (Wait& wait : waits) {
    if (!wait.missing.empty()) continue;  // under way: who waits for whom is not known
    wait.missing = WhoIsMissing(*wait.operation);
    wait.is_told_by_another = AnotherTells(*wait.operation, wait.missing);
  }
  if (!never && longest->waited_ms >= settings_.timeout_ms) return GiveUpWaiting(*longest, false);
  if (asked_again_ == TimePoint() || MillisecondsBetween(asked_again_, now) >= kAskAgainMs) {
    asked_again_ = now;
    std::vector<Wait> lacking = waits;
    if (const Wait* const lost = FindDeadlock(&lacking)) return GiveUpWaiting(*lost, true);
    AskThoseThatNeedUs(waits);
  }
  MarkMutual(&waits);
  std::vector<int> asked;
  for (const Delay& delay : delays_.News(waits, now)) {
    if (delay.is_ours_to_tell) {
      Warn(delay);
      told_of_.insert(delay.ranks.begin(), delay.ranks.end());
    }
    asked.insert(asked.end(), delay.ranks.begin(), delay.ranks.end());
  }
  Ask(asked);
}

void ProgressLoop::Warn(const Delay& delay) const {
  const bool one = delay.ranks.size() == 1 && delay.ranks[0] != kUnknownRanks;
  const bool names_ranks = delay.ranks[0] != kOwnDevice && delay.ranks[0] != kOwnLibrary;
  const std::string look = !names_ranks ? "" : one ? "look at its output first; " : "look at their output first; ";
  Log(LogLevel::kWarning, NamesOf(delay.ranks, delay.reason) + (one ? " has" : " have") + " kept " + TitleOf(delay) +
                              " waiting for " + Seconds(delay.waited_ms) + HowTheyNeedUs(delay.ranks, false) + "; " +
                              look + "raise FARANDOLE_WARN_AFTER if that is normal");
}

// Operations that not all ranks have submitted.
std::vector<Wait> ProgressLoop::Waits(TimePoint now) {
  std::lock_guard<std::mutex> lock(table_->mutex);
  std::vector<Wait> waits;
  for (OperationPtr& operation : table_->operations.All()) {
    if (operation->submitted == TimePoint()) operation->submitted = now;
    const int64_t waited_ms = MillisecondsBetween(operation->submitted, now);
    if (waited_ms >= kStuckMs && !operation->named() && !operation->stuck_reported) {
      operation->stuck_reported = true;
      table_->negotiation.ReportStuck(operation->plan.ticket);
      table_->has_outgoing = true;
    }
    waits.push_back({std::move(operation), waited_ms, {}});
  }
  return waits;
}

// A rank that has joined waits for long only when it takes part in nothing: while the others go on, all is well.
void ProgressLoop::AddJoin(TimePoint now, std::vector<Wait>* waits) {
  const OperationPtr join = Joined();
  if (!join) return;
  const bool takes_part = table_->in_flight > 1;
  if (takes_part || join->submitted == TimePoint()) join->submitted = now;
  if (!takes_part) waits->push_back({join, MillisecondsBetween(join->submitted, now), {}});
}

// What only rank 0 can know; its answer may take a moment.
void ProgressLoop::LearnWhoIsAbsent(TimePoint now) {
  if (control_.coordinator() != nullptr) {
    OnAbsent(control_.coordinator()->Absences());
    return;
  }
  if (asked_whom_ != TimePoint() && MillisecondsBetween(asked_whom_, now) < kAskAgainMs) return;
  asked_whom_ = now;
  std::lock_guard<std::mutex> lock(table_->mutex);
  whom_entered_.push_back(table_->entered);
  table_->negotiation.AskWhom();
  table_->has_outgoing = true;
}

void ProgressLoop::OnAbsent(const std::vector<Absence>& absences) {
  absent_.clear();
  needed_.clear();
  if (!whom_entered_.empty()) {  // answers come in the order of the questions
    needed_entered_ = whom_entered_.front();
    whom_entered_.pop_front();
  }
  for (const Absence& absence : absences) {
    if (std::find(absence.ranks.begin(), absence.ranks.end(), world_->rank) != absence.ranks.end()) {
      needed_.push_back(absence);
    } else {
      absent_[absence.title].assign(absence.ranks.begin(), absence.ranks.end());
    }
  }
}

// Operations that other ranks have come to and this rank has not: of ranks that share memory with it as they are now,
// of others as rank 0 has said.
std::vector<Absence> ProgressLoop::NeededFor() const {
  std::vector<Absence> needed = needed_;
  std::lock_guard<std::mutex> lock(table_->mutex);
  for (Absence& each : table_->negotiation.NeededFor()) needed.push_back(std::move(each));
  std::set<std::string> here;  // rank 0 knows of whole groups only
  for (const OperationPtr& operation : table_->operations.All()) here.insert(operation->Title());
  const auto is_here = [&here](const Absence& each) { return here.count(each.title) > 0; };
  needed.erase(std::remove_if(needed.begin(), needed.end(), is_here), needed.end());
  return needed;
}

// A clause about ranks that are waited for, if one of them waits for this rank; else "".
std::string ProgressLoop::HowTheyNeedUs(const std::vector<int>& ranks, bool for_ever) const {
  for (const Absence& each : NeededFor()) {
    for (int64_t rank : each.here) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      return ", while rank " + std::to_string(rank) + " waits for this one to call " + each.title +
             ": they wait for each other, " +
             (for_ever ? "and neither has a thread that could still call what the other needs"
                       : "for ever unless one still calls what the other needs") +
             ". Mostly one rank has more batches than another: let each call join() when its own are used up";
    }
  }
  return "";
}

std::vector<int> ProgressLoop::WhoIsMissing(const Operation& operation) const {
  std::vector<int> missing;
  {
    std::lock_guard<std::mutex> lock(table_->mutex);
    missing = table_->negotiation.MissingRanks(operation.plan.ticket);
  }
  if (!missing.empty()) return missing;
  const auto absent = absent_.find(operation.Title());
  return absent == absent_.end() || absent->second.empty() ? std::vector<int>{kUnknownRanks} : absent->second;
}

// Ranks that share memory write to one terminal, mostly. Of those that have come, and so wait as this one does, the
// first warns. (Which ranks have joined, and wait for nothing, is not known.)
bool ProgressLoop::AnotherTells(const Operation& operation, const std::vector<int>& missing) const {
  const bool is_join = operation.request.kind == OpKind::kJoin;
  if (missing[0] == kUnknownRanks || (!is_join && table_->negotiation.AnyJoined())) return false;
  const Layout& layout = world_->layout;
  const auto here = static_cast<size_t>(layout.group_of[static_cast<size_t>(world_->rank)]);
  for (int rank : layout.groups[here]) {
    if (rank == world_->rank) return false;
    const bool has_come = std::find(missing.begin(), missing.end(), rank) == missing.end();
    if (has_come && operation.plan.set->PositionOf(rank) >= 0) return true;
  }
  return false;
}

std::string ProgressLoop::NamesOf(const std::vector<int>& ranks, const std::string& reason) const {
  if (ranks[0] == kOwnDevice || ranks[0] == kOwnLibrary) return reason;
  if (ranks[0] == kUnknownRanks)
    return control_.coordinator() != nullptr ? "other ranks" : "ranks that " + world_->NameOf(0) + " has not named";
  std::string names;
  for (size_t i = 0; i < std::min(kMostNames, ranks.size()); ++i)
    names += (i == 0 ? "" : ", ") + world_->NameOf(ranks[i]);
  if (ranks.size() > kMostNames) names += " and " + std::to_string(ranks.size() - kMostNames) + " more";
  return names;
}

void ProgressLoop::GiveUpWaiting(const Wait& wait, bool is_deadlock) {
  const std::string places = PlacesSince(Now() - std::chrono::milliseconds(wait.waited_ms));
  std::string names = NamesOf(wait.missing, wait.reason);
  if (names.back() == ',') names.pop_back();  // of a clause that ends here
  Abort(
      {{Code::kDeadline, wait.operation->Title() + " has waited " + Seconds(wait.waited_ms) + " on rank " +
                             std::to_string(world_->rank) + " for " + names + HowTheyNeedUs(wait.missing, is_deadlock) +
                             places + (is_deadlock ? "" : "; raise FARANDOLE_TIMEOUT if that is normal")},
       -1});
}

// What ranks said while others were waited for, before `begin`, is of no use to anybody now.
std::string ProgressLoop::PlacesSince(TimePoint begin) const {
  std::string places;
  for (const auto& [rank, place] : places_) {
    if (place.seen >= begin) places += "; rank " + std::to_string(rank) + " was last seen in " + place.frame;
  }
  return places;
}

// `needed`: what they have come to and this rank has not.
void ProgressLoop::Ask(std::vector<int> ranks, const std::map<int, std::set<std::string>>& needed) {
  ranks.erase(std::remove_if(ranks.begin(), ranks.end(), [](int rank) { return rank < 0; }), ranks.end());
  if (ranks.empty()) return;
  std::lock_guard<std::mutex> lock(table_->mutex);
  for (int rank : ranks) {
    const auto known = needed.find(rank);
    sought_[rank].push_back({table_->entered, known == needed.end() ? std::set<std::string>() : known->second});
  }
  table_->negotiation.Ask(ranks);
  table_->has_outgoing = true;
}

// Many may ask at once, and looking costs a little; a second later nothing much has changed.
void ProgressLoop::Answer(int asker) {
  const TimePoint now = Now();
  where_.waits_only_for.clear();  // an old answer to that is none
  if (answered_ == TimePoint() || MillisecondsBetween(answered_, now) >= kAskAgainMs / 2) {
    where_.stacks = StacksOfThisProcess();
    where_.waits_only_for = WaitsOnlyFor(where_.stacks);
    answered_ = now;
  }
  std::lock_guard<std::mutex> lock(table_->mutex);
  table_->negotiation.Answer(asker, where_);
  table_->has_outgoing = true;
}

void ProgressLoop::OnAnswer(int rank, const Whereabouts& where) {
  const std::string& stacks = where.stacks;
  NoteWhoIsStuck(rank, where.waits_only_for);
  if (stacks.empty()) return;
  places_[rank] = {UsersFrame(stacks), Now()};
  if (told_of_.erase(rank) == 0) return;
  Log(LogLevel::kWarning, "that is where " + world_->NameOf(rank) + " is, by thread, innermost call first:\n" + stacks);
}

void ProgressLoop::OnRefused(int rank, const std::string& text) const {
  Log(LogLevel::kWarning,
      world_->NameOf(rank) + " has refused a change of process sets for which this rank waits" + text);
}

}  // namespace farandole
