#include "engine/stalls.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "common/log.h"
#include "engine/stacks.h"

namespace farandole {
namespace {

constexpr int64_t kStuckMs = 100;  // after this an unnamed operation asks whether others wait under another id
constexpr int64_t kAskAgainMs = 1000;
constexpr int64_t kWarnAgainMs = 60'000;
// How long rank 0 has to say which ranks are missing, before a warning says that they are unknown. A rank that waits
// for this one has as long to say that it waits for nothing else: the error that then ends the job says all that a
// warning would.
constexpr int64_t kAnswerMs = 3000;
constexpr size_t kMostNamed = 4;  // in a message

bool IsTime(TimePoint before, int64_t interval_ms, TimePoint now) {
  return before == TimePoint() || MillisecondsBetween(before, now) >= interval_ms;
}

bool Contains(const std::vector<int>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::string Seconds(int64_t milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", static_cast<double>(milliseconds) / 1000);
  return text;
}

// Several operations may wait for one rank: the one that has waited longest stands for all of them.
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

// Ranks that are late in the same way share one sentence.
void Merge(int rank, const Delay& of_rank, std::vector<Delay>* delays) {
  const auto same = std::find_if(delays->begin(), delays->end(), [&](const Delay& delay) {
    return delay.first == of_rank.first && delay.operations == of_rank.operations &&
           delay.is_ours_to_tell == of_rank.is_ours_to_tell;
  });
  if (same != delays->end()) return same->ranks.push_back(rank);
  delays->push_back(of_rank);
  delays->back().ranks.push_back(rank);
}

// A clause about ranks that are waited for, if one of them needs this rank; else "".
std::string HowTheyNeedUs(const std::vector<int>& ranks, const std::vector<Absence>& needed, bool for_ever) {
  for (const Absence& each : needed) {
    for (int64_t rank : each.here) {
      if (!Contains(ranks, rank)) continue;
      return ", while rank " + std::to_string(rank) + " waits for this one to call " + each.title +
             ": they wait for each other, " +
             (for_ever ? "and neither has a thread that could still call what the other needs"
                       : "for ever unless one still calls what the other needs") +
             ". Mostly one rank has more batches than another: let each call join() when its own are used up";
    }
  }
  return "";
}

}  // namespace

// ---- which delays are news

std::vector<Delay> Delays::News(const std::vector<Wait>& waits, TimePoint now) {
  std::vector<Delay> news;
  std::map<int, Reported> reported;
  for (const auto& [rank, delay] : ByRank(waits)) {
    const int64_t limit_ms = warn_after_ms_ + (rank == kUnknownRanks || delay.is_mutual ? kAnswerMs : 0);
    if (delay.waited_ms < limit_ms) continue;
    const auto before = reported_.find(rank);
    const bool known = before != reported_.end() && MillisecondsBetween(before->second.when, now) < kWarnAgainMs &&
                       (before->second.ours || !delay.is_ours_to_tell);
    reported[rank] = known ? before->second : Reported{now, delay.is_ours_to_tell};
    if (!known) Merge(rank, delay, &news);
  }
  reported_ = std::move(reported);  // without the ranks that have come: they are news when they are late again
  return news;
}

std::string TitleOf(const Delay& delay) {
  const std::string first = delay.first->Title();
  if (delay.operations == 1) return first;
  return std::to_string(delay.operations) + " operations, the first of them " + first + ",";
}

// ---- one look at everything that this rank waits for

StallInspector::StallInspector(const World* world, Operations* operations, const Coordinator* coordinator,
                               const Settings& settings)
    : world_(world),
      operations_(operations),
      coordinator_(coordinator),
      timeout_ms_(settings.timeout_ms),
      patience_ms_(timeout_ms_ <= 0 ? settings.warn_after_ms : std::min(settings.warn_after_ms, timeout_ms_ / 2)),
      delays_(settings.warn_after_ms),
      deadlocks_(operations) {}

std::optional<EpochEnd> StallInspector::Check(TimePoint now, std::vector<Wait> under_way) {
  std::vector<Wait> waits = Waits(now);
  std::move(under_way.begin(), under_way.end(), std::back_inserter(waits));
  AddJoin(now, &waits);
  const auto longest = std::max_element(waits.begin(), waits.end(),
                                        [](const Wait& a, const Wait& b) { return a.waited_ms < b.waited_ms; });
  if (longest == waits.end() || longest->waited_ms < patience_ms_) {
    absent_.clear();
    delays_.News({}, now);
    return std::nullopt;
  }
  LearnWhoIsAbsent(now);
  NameMissing(&waits);
  std::vector<Absence> needed = NeededFor();
  if (timeout_ms_ > 0 && longest->waited_ms >= timeout_ms_) return GiveUp(*longest, needed, false);
  if (IsTime(looked_, kAskAgainMs, now)) {
    looked_ = now;
    if (std::optional<EpochEnd> lost = LookForDeadlock(waits, &needed)) return lost;
  }
  if (deadlocks_.IsPossible()) MarkMutual(needed, KnowsWhoNeedsUs(), &waits);
  Tell(waits, needed, now);
  return std::nullopt;
}

// Operations that not all ranks have submitted.
std::vector<Wait> StallInspector::Waits(TimePoint now) {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  std::vector<Wait> waits;
  for (OperationPtr& operation : operations_->by_ticket.All()) {
    if (operation->submitted == TimePoint()) operation->submitted = now;
    const int64_t waited_ms = MillisecondsBetween(operation->submitted, now);
    if (!operation->stuck_reported && waited_ms >= StuckAfterMs(*operation)) {
      operation->stuck_reported = true;
      operations_->negotiation.ReportStuck(operation->admission.ticket);
    }
    waits.push_back({std::move(operation), waited_ms, {}});
  }
  return waits;
}

// How long the operation may wait before rank 0 hears of it, and all ranks that have come describe it again. Other
// groups do not know which member of a group has not come to an eager operation; rank 0 then does.
int64_t StallInspector::StuckAfterMs(const Operation& operation) const {
  if (!operation.named()) return kStuckMs;
  const Admission& admission = operation.admission;
  const bool is_between_groups = admission.inbox && admission.set->layout.shard_count() > 1;
  return is_between_groups ? patience_ms_ / 2 : std::numeric_limits<int64_t>::max();
}

// This rank's join, once rank 0 is told of it; else null.
OperationPtr StallInspector::Joined() const {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  return operations_->wants_join ? nullptr : operations_->join;
}

// A rank that has joined is stalled only when it takes part in nothing: while the others go on, all is well.
void StallInspector::AddJoin(TimePoint now, std::vector<Wait>* waits) const {
  const OperationPtr join = Joined();
  if (!join) return;
  const bool takes_part = operations_->in_flight > 1;
  if (takes_part || join->submitted == TimePoint()) join->submitted = now;
  if (!takes_part) waits->push_back({join, MillisecondsBetween(join->submitted, now), {}});
}

void StallInspector::OnInvited() {
  if (const OperationPtr join = Joined()) join->submitted = Now();
}

// ---- who is missing

// The backend has named the missing ranks for tasks under way.
void StallInspector::NameMissing(std::vector<Wait>* waits) const {
  for (Wait& wait : *waits) {
    if (!wait.missing.empty()) continue;
    wait.missing = WhoIsMissing(*wait.operation);
    wait.is_told_by_another = AnotherTells(*wait.operation, wait.missing);
  }
}

std::vector<int> StallInspector::WhoIsMissing(const Operation& operation) const {
  std::vector<int> missing;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    missing = operations_->negotiation.MissingRanks(operation.admission.ticket);
  }
  if (!missing.empty()) return missing;
  const auto absent = absent_.find(operation.Title());
  return absent == absent_.end() || absent->second.empty() ? std::vector<int>{kUnknownRanks} : absent->second;
}

// Ranks that share memory mostly write to one terminal. So of those that have arrived, and wait as this one does, the
// first warns. (Which ranks have joined, and wait for nothing, is not known.)
bool StallInspector::AnotherTells(const Operation& operation, const std::vector<int>& missing) const {
  const bool is_join = operation.request.kind == OpKind::kJoin;
  if (missing[0] == kUnknownRanks || (!is_join && operations_->negotiation.AnyJoined())) return false;
  const Layout& layout = world_->layout;
  const auto here = static_cast<size_t>(layout.group_of[static_cast<size_t>(world_->rank)]);
  for (int rank : layout.groups[here]) {
    if (rank == world_->rank) return false;
    if (!Contains(missing, rank) && operation.admission.set->PositionOf(rank) >= 0) return true;
  }
  return false;
}

// Asks rank 0, which alone knows all missing ranks; its answer may take a moment.
void StallInspector::LearnWhoIsAbsent(TimePoint now) {
  if (coordinator_ != nullptr) return OnAbsent(coordinator_->Absences());
  if (!IsTime(asked_whom_, kAskAgainMs, now)) return;
  asked_whom_ = now;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  whom_entered_.push_back(operations_->entered);
  operations_->negotiation.outbox().AskWhom();
}

void StallInspector::OnAbsent(const std::vector<Absence>& absences) {
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

// ---- who waits for this rank

// Rank 0's answer holds until this rank submits another operation. On rank 0 itself it is always current.
bool StallInspector::KnowsWhoNeedsUs() const {
  if (coordinator_ != nullptr) return true;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  return needed_entered_ == operations_->entered;
}

// Returns the operations at which other ranks have arrived and this rank has not: for ranks that share memory with it
// as they are now, for others as rank 0 has said.
std::vector<Absence> StallInspector::NeededFor() const {
  std::vector<Absence> needed = needed_;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  for (Absence& each : operations_->negotiation.NeededFor()) needed.push_back(std::move(each));
  std::set<std::string> here;  // rank 0 knows of whole groups only
  for (const OperationPtr& operation : operations_->by_ticket.All()) here.insert(operation->Title());
  const auto is_here = [&here](const Absence& each) { return here.count(each.title) > 0; };
  needed.erase(std::remove_if(needed.begin(), needed.end(), is_here), needed.end());
  return needed;
}

// Returns the end if one is found. Else asks again, and drops from `needed` what may not hold any more.
std::optional<EpochEnd> StallInspector::LookForDeadlock(const std::vector<Wait>& waits, std::vector<Absence>* needed) {
  if (const std::optional<Wait> lost = deadlocks_.Find(waits)) return GiveUp(*lost, *needed, true);
  if (!deadlocks_.IsPossible()) return std::nullopt;
  if (!KnowsWhoNeedsUs()) {
    needed_.clear();
    *needed = NeededFor();
  }
  deadlocks_.AskThoseThatNeedUs(waits, *needed);
  return std::nullopt;
}

// ---- what is said

void StallInspector::Tell(const std::vector<Wait>& waits, const std::vector<Absence>& needed, TimePoint now) {
  std::vector<int> late;
  for (const Delay& delay : delays_.News(waits, now)) {
    if (delay.is_ours_to_tell) {
      Warn(delay, needed);
      reported_.insert(delay.ranks.begin(), delay.ranks.end());
    }
    late.insert(late.end(), delay.ranks.begin(), delay.ranks.end());
  }
  deadlocks_.Ask(late);
}

void StallInspector::Warn(const Delay& delay, const std::vector<Absence>& needed) const {
  const bool one = delay.ranks.size() == 1 && delay.ranks[0] != kUnknownRanks;
  const bool names_ranks = delay.ranks[0] != kOwnDevice && delay.ranks[0] != kOwnLibrary;
  const std::string look = !names_ranks ? "" : one ? "look at its output first; " : "look at their output first; ";
  Log(LogLevel::kWarning, NamesOf(delay.ranks, delay.reason), (one ? " has" : " have"), " kept ", TitleOf(delay),
      " waiting for ", Seconds(delay.waited_ms), HowTheyNeedUs(delay.ranks, needed, false), "; ", look,
      "raise FARANDOLE_WARN_AFTER if that is normal");
}

EpochEnd StallInspector::GiveUp(const Wait& wait, const std::vector<Absence>& needed, bool is_deadlock) const {
  const std::string places = PlacesSince(Now() - std::chrono::milliseconds(wait.waited_ms));
  std::string names = NamesOf(wait.missing, wait.reason);
  if (names.back() == ',') names.pop_back();  // the clause ends here
  const std::string text = wait.operation->Title() + " has waited " + Seconds(wait.waited_ms) + " on rank " +
                           std::to_string(world_->rank) + " for " + names +
                           HowTheyNeedUs(wait.missing, needed, is_deadlock) + places;
  return {{Code::kDeadline, text, (is_deadlock ? "" : "; raise FARANDOLE_TIMEOUT if that is normal")}, -1};
}

std::string StallInspector::NamesOf(const std::vector<int>& ranks, const std::string& reason) const {
  if (ranks[0] == kOwnDevice || ranks[0] == kOwnLibrary) return reason;
  if (ranks[0] == kUnknownRanks)
    return coordinator_ != nullptr ? "other ranks"
                                   : "ranks that " + world_->NameOf(kCoordinatorRank) + " has not named";
  std::string names;
  for (size_t i = 0; i < std::min(kMostNamed, ranks.size()); ++i)
    names += (i == 0 ? "" : ", ") + world_->NameOf(ranks[i]);
  if (ranks.size() > kMostNamed) names += " and " + std::to_string(ranks.size() - kMostNamed) + " more";
  return names;
}

// Leaves out answers from before `begin`, which are about other waits.
std::string StallInspector::PlacesSince(TimePoint begin) const {
  std::string places;
  for (const auto& [rank, place] : places_) {
    if (place.seen >= begin) places += "; rank " + std::to_string(rank) + " was last seen in " + place.frame;
  }
  return places;
}

// ---- what others say

void StallInspector::On(const Negotiation::Event& event) {
  if (event.kind == Negotiation::Event::kAbsent) OnAbsent(event.absences);
  if (event.kind == Negotiation::Event::kAsked) Answer(event.rank);
  if (event.kind == Negotiation::Event::kAnswered) OnAnswer(event.rank, event.where);
  if (event.kind != Negotiation::Event::kRefused) return;
  Log(LogLevel::kWarning, world_->NameOf(event.rank), " has refused a change of process sets for which this rank waits",
      event.status.message());
}

// Many may ask at once, and a look costs a little, so an answer is used again for half a second.
void StallInspector::Answer(int asker) {
  const TimePoint now = Now();
  where_.waits_only_for.clear();  // must be current, so it is not used again
  if (IsTime(answered_, kAskAgainMs / 2, now)) {
    where_.stacks = StacksOfThisProcess();
    where_.waits_only_for = deadlocks_.WaitsOnlyFor(where_.stacks);
    answered_ = now;
  }
  std::lock_guard<std::mutex> lock(operations_->mutex);
  operations_->negotiation.outbox().Answer(asker, where_);
}

void StallInspector::OnAnswer(int rank, const Whereabouts& where) {
  deadlocks_.OnAnswer(rank, where.waits_only_for);
  if (where.stacks.empty()) return;
  places_[rank] = {UsersFrame(where.stacks), Now()};
  if (reported_.erase(rank) == 0) return;
  Log(LogLevel::kWarning, "that is where ", world_->NameOf(rank), " is, by thread, innermost call first:\n",
      where.stacks);
}

}  // namespace farandole
