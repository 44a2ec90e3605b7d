#include "engine/stalls.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>
#include <tuple>

#include "common/log.h"

namespace farandole {
namespace {

constexpr int64_t kStuckMs = 100;  // then an unnamed operation asks whether others wait under another id
constexpr int64_t kAskAgainMs = 1000;
constexpr int64_t kReportMs = 200;  // between two reports to the diagnosis
constexpr int64_t kWarnAgainMs = 60'000;
constexpr int64_t kAnswerMs = 3000;  // rank 0 has so long to name the missing ranks before a warning without names
constexpr size_t kMaxNamed = 4;      // in a message
constexpr size_t kMaxNeeded = 1000;  // in a report

bool IsDue(TimePoint before, int64_t interval_ms, TimePoint now) {
  return before == TimePoint() || MillisecondsBetween(before, now) >= interval_ms;
}

template <typename Ranks>
bool Contains(const Ranks& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::string Seconds(int64_t milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", static_cast<double>(milliseconds) / 1000);
  return text;
}

// A backend completes what is under way, and the progress loops complete early operations, whatever the programs do.
bool EndsByItself(const Wait& wait) { return wait.is_under_way || wait.operation->admission.early; }

// Returns ", while rank 1 waits ..." if one of these ranks waits for this one; else "".
std::string DescribeMutualWait(int own_rank, const std::vector<int>& ranks, const std::vector<Absence>& needed) {
  for (const Absence& each : needed) {
    for (int64_t rank : each.here) {
      if (!Contains(ranks, rank)) continue;
      return Text(", while rank ", rank, " waits for rank ", own_rank, " in ", each.title,
                  ": every rank must make the same calls, in the same order");
    }
  }
  return "";
}

}  // namespace

// ---- what this rank waits for

StallInspector::StallInspector(Operations* operations, const EarlySums* early_sums, const Coordinator* coordinator,
                               const Settings& settings)
    : world_(operations->world),
      operations_(operations),
      early_sums_(early_sums),
      coordinator_(coordinator),
      timeout_ms_(settings.timeout_ms),
      warn_after_ms_(settings.warn_after_ms),
      patience_ms_(timeout_ms_ <= 0 ? settings.warn_after_ms : std::min(settings.warn_after_ms, timeout_ms_ / 2)) {}

std::optional<EpochEnd> StallInspector::Check(TimePoint now, std::vector<Wait> under_way) {
  SendRequests(now);
  if (std::optional<EpochEnd> excluded = FindExcluded(now)) return excluded;
  std::vector<Wait> waits = Waits(now);
  std::move(under_way.begin(), under_way.end(), std::back_inserter(waits));
  AddJoin(now, &waits);
  const auto longest = std::max_element(waits.begin(), waits.end(),
                                        [](const Wait& a, const Wait& b) { return a.waited_ms < b.waited_ms; });
  const int64_t patience_ms = std::min(patience_ms_, operations_->shortest_limit_ms.load() / 2);
  if (longest == waits.end() || longest->waited_ms < patience_ms) {
    ClearReports();
    return std::nullopt;
  }
  UpdateAbsences(now);
  FillInMissing(&waits);
  NoteAwaited(waits);
  Needed needed = NeededFor();
  const bool is_overdue = timeout_ms_ > 0 && longest->waited_ms >= timeout_ms_;
  if (!is_overdue) overdue_ = TimePoint();
  if (std::optional<EpochEnd> decided = TakeDecision(is_overdue)) return decided;
  const bool has_time = overdue_ == TimePoint() || now - overdue_ < DiagnosisChannel::kPatience;
  const bool responds = operations_->diagnosis.Responds(now);
  if (is_overdue && (!has_time || !responds)) return DeadlineEnd(*longest, needed.operations);
  responds ? Report(waits, std::move(needed), is_overdue, now) : Warn(*longest, now);
  return std::nullopt;
}

void StallInspector::ClearReports() {
  absent_.clear();
  overdue_ = warned_ = TimePoint();
  if (reported_ != TimePoint()) operations_->diagnosis.Publish({});
  reported_ = TimePoint();
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

// How long the operation may wait before it is reported to rank 0, and all ranks that have arrived describe it again.
// Only rank 0 then knows which ranks of other nodes have not arrived at an early operation, and they learn that they
// are awaited.
int64_t StallInspector::StuckAfterMs(const Operation& operation) const {
  if (!operation.named()) return kStuckMs;
  return operation.admission.early ? patience_ms_ / 2 : std::numeric_limits<int64_t>::max();
}

// This rank's join, once rank 0 is told of it; else null.
OperationPtr StallInspector::AnnouncedJoin() const {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  return operations_->wants_join ? nullptr : operations_->join;
}

// A rank that has joined is stalled only while it takes part in nothing: otherwise the others make progress.
void StallInspector::AddJoin(TimePoint now, std::vector<Wait>* waits) const {
  const OperationPtr join = AnnouncedJoin();
  if (!join) return;
  const bool takes_part = operations_->in_flight > 1;
  if (takes_part || join->submitted == TimePoint()) join->submitted = now;
  if (!takes_part) waits->push_back({join, MillisecondsBetween(join->submitted, now), {}});
}

void StallInspector::OnInvited() {
  if (const OperationPtr join = AnnouncedJoin()) join->submitted = Now();
}

// ---- who is missing

// For tasks under way the backend has named the missing ranks already.
void StallInspector::FillInMissing(std::vector<Wait>* waits) const {
  for (Wait& wait : *waits) {
    if (!wait.missing.empty()) continue;
    wait.missing = MissingRanks(*wait.operation);
    wait.is_reported_by_peer = IsReportedByPeer(*wait.operation, wait.missing);
  }
}

void StallInspector::NoteAwaited(const std::vector<Wait>& waits) const {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  for (const Wait& wait : waits) wait.operation->missing = NamesOf(wait.missing, wait.reason);
}

std::vector<int> StallInspector::MissingRanks(const Operation& operation) const {
  std::vector<int> missing;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    missing = operations_->negotiation.MissingRanks(operation.admission.ticket);
  }
  if (missing.empty()) missing = early_sums_->MissingRanks(operation.admission.ticket);
  if (!missing.empty()) return missing;
  const auto absent = absent_.find(operation.Title());
  if (absent == absent_.end() || absent->second.ranks.empty()) return {kUnknownRanks};
  return {absent->second.ranks.begin(), absent->second.ranks.end()};
}

// Ranks of one node usually write to one terminal, so only the first of those that have arrived warns. Those that have
// joined do not wait; then rank 0 knows the others, since every operation is described.
bool StallInspector::IsReportedByPeer(const Operation& operation, const std::vector<int>& missing) const {
  if (missing[0] == kUnknownRanks) return false;
  const auto absent = absent_.find(operation.Title());
  const Layout& layout = world_->layout;
  const auto here = static_cast<size_t>(layout.node_of[static_cast<size_t>(world_->rank)]);
  for (int rank : layout.nodes[here]) {
    if (rank == world_->rank) return false;
    const bool waits = absent == absent_.end()
                           ? !Contains(missing, rank) && operation.admission.set->PositionOf(rank) >= 0
                           : Contains(absent->second.here, rank);
    if (waits) return true;
  }
  return false;
}

// Only rank 0 knows all missing ranks. Its answer arrives later, by OnAbsent.
void StallInspector::UpdateAbsences(TimePoint now) {
  if (coordinator_ != nullptr) return OnAbsent(coordinator_->Absences());
  if (!IsDue(absences_asked_at_, kAskAgainMs, now)) return;
  absences_asked_at_ = now;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  entered_at_question_.push_back(operations_->entered);
  operations_->negotiation.SendQuestion({});
}

void StallInspector::OnAbsent(const std::vector<Absence>& absences) {
  absent_.clear();
  needed_.clear();
  ++answers_;
  if (!entered_at_question_.empty()) {  // answers come in the order of the questions
    needed_entered_ = entered_at_question_.front();
    entered_at_question_.pop_front();
  }
  for (const Absence& absence : absences) {
    if (std::find(absence.ranks.begin(), absence.ranks.end(), world_->rank) != absence.ranks.end()) {
      needed_.push_back(absence);
    } else {
      absent_[absence.title] = absence;
    }
  }
}

// ---- who waits for this rank

// The operations at which other ranks have arrived and this rank has not. This rank knows of ranks that share memory
// with it or send it data; the others come from rank 0, whose answer holds until this rank submits another operation.
// On rank 0 itself they are always current.
StallInspector::Needed StallInspector::NeededFor() const {
  std::lock_guard<std::mutex> lock(operations_->mutex);
  Needed needed;
  needed.entered = operations_->entered;
  needed.is_known = coordinator_ != nullptr || needed_entered_ == needed.entered;
  if (needed.is_known) needed.operations = needed_;
  for (Absence& each : operations_->negotiation.NeededFor()) needed.operations.push_back(std::move(each));
  std::set<std::string> here;  // rank 0 only knows of whole nodes
  for (const OperationPtr& operation : operations_->by_ticket.All()) here.insert(operation->Title());
  const auto is_here = [&here](const Absence& each) { return here.count(each.title) > 0; };
  needed.operations.erase(std::remove_if(needed.operations.begin(), needed.operations.end(), is_here),
                          needed.operations.end());
  return needed;
}

// Ends the epoch if a rank waits for this one in a call that this one excludes, since both would wait for ever. A rank
// that has left the meeting may make such a call before this rank knows that the meeting is over.
std::optional<EpochEnd> StallInspector::FindExcluded(TimePoint now) {
  std::map<int64_t, ExcludedCalls> excluded;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    excluded = operations_->excluded;
  }
  if (excluded.empty()) {
    suspected_.clear();
    return std::nullopt;
  }
  const std::vector<Absence> needed = NeededFor().operations;
  for (const auto& [number, calls] : excluded) {
    for (const Absence& need : needed) {
      if (!IsTitleOf(need.title, calls.set, calls.prefix)) continue;
      for (int64_t rank : need.here) suspected_.emplace(std::pair(number, static_cast<int>(rank)), QuestionsAsked());
    }
  }
  UpdateAbsences(now);
  for (const auto& [of, questions] : suspected_) {
    const auto calls = excluded.find(of.first);
    if (calls == excluded.end() || !IsMissingAt(calls->second, of.second, questions)) continue;
    return EpochEnd{
        {Code::kMismatch, calls->second.why, ", but ", world_->NameOf(of.second), " has more: ", calls->second.advice},
        -1};
  }
  return std::nullopt;
}

// Only answers of rank 0 to later questions count: an earlier one may be older than the rank's arrival at the meeting.
bool StallInspector::IsMissingAt(const ExcludedCalls& calls, int rank, uint64_t suspected) const {
  const std::string title = TitleOf(OpKind::kBarrier, calls.set, calls.meeting, -1);
  std::lock_guard<std::mutex> lock(operations_->mutex);
  for (const OperationPtr& operation : operations_->by_ticket.All()) {
    if (operation->Title() != title) continue;
    if (Contains(operations_->negotiation.MissingRanks(operation->admission.ticket), rank)) return true;
    const auto absent = absent_.find(title);
    return answers_ > suspected && absent != absent_.end() && Contains(absent->second.ranks, rank);
  }
  return false;
}

// ---- the diagnosis

void StallInspector::SendRequests(TimePoint now) {
  const DiagnosisChannel::Requests requests = operations_->diagnosis.TakeRequests(now);
  if (requests.asks.empty() && requests.replies.empty()) return;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  for (const std::vector<int>& ranks : requests.asks) operations_->negotiation.SendQuestion(ranks);
  for (const auto& [asker, text] : requests.replies) operations_->negotiation.SendAnswer(asker, text);
}

// Returns the longest wait of each group with the size of the group, in the order of `waits`.
std::map<const Wait*, size_t> StallInspector::GroupWaits(const std::vector<Wait>& waits) const {
  std::set<const Operation*> awaited;
  for (const auto& [thread, operation] : operations_->blocked.operations()) awaited.insert(operation.get());
  using Alike = std::tuple<const Operation*, std::vector<int>, std::string, bool, bool>;
  std::map<Alike, std::pair<const Wait*, size_t>> groups;
  for (const Wait& wait : waits) {
    const Operation* const own = awaited.count(wait.operation.get()) > 0 ? wait.operation.get() : nullptr;
    auto& [longest, count] = groups[{own, wait.missing, wait.reason, wait.is_reported_by_peer, EndsByItself(wait)}];
    if (longest == nullptr || longest->waited_ms < wait.waited_ms) longest = &wait;
    ++count;
  }
  std::map<const Wait*, size_t> in_order;
  for (const auto& [alike, group] : groups) in_order.insert(group);
  return in_order;
}

void StallInspector::Report(const std::vector<Wait>& waits, Needed needed, bool is_overdue, TimePoint now) {
  const bool is_new = is_overdue && overdue_ == TimePoint();
  if (!is_new && !IsDue(reported_, kReportMs, now)) return;
  reported_ = now;
  if (is_new) overdue_ = now;
  if (needed.operations.size() > kMaxNeeded) {
    needed.operations.resize(kMaxNeeded);
    needed.is_known = false;
  }
  WaitReport report{needed.entered, warn_after_ms_, is_overdue, {}, std::move(needed.operations), needed.is_known};
  for (const auto& [wait, count] : GroupWaits(waits)) {
    report.waits.push_back(FactsOf(*wait));
    report.waits.back().operations = count;
  }
  operations_->diagnosis.Publish(std::move(report));
}

WaitFacts StallInspector::FactsOf(const Wait& wait) const {
  const Operation& operation = *wait.operation;
  const int set_size = operation.admission.set ? operation.admission.set->size() : world_->size;
  return {operation.Title(),
          operation.Call(),
          operation.named(),
          set_size,
          wait.waited_ms,
          1,
          wait.missing,
          NamesOf(wait.missing, wait.reason),
          wait.is_reported_by_peer,
          EndsByItself(wait)};
}

// Drops a decision whose wait has ended meanwhile.
std::optional<EpochEnd> StallInspector::TakeDecision(bool is_overdue) {
  std::optional<Decision> decision = operations_->diagnosis.TakeDecision();
  if (!decision) return std::nullopt;
  const bool is_deadline = decision->status.code() == Code::kDeadline;
  std::lock_guard<std::mutex> lock(operations_->mutex);
  if (is_deadline ? !is_overdue : decision->entered != operations_->entered) return std::nullopt;
  return EpochEnd{std::move(decision->status), decision->culprit};
}

// ---- without the diagnosis

void StallInspector::Warn(const Wait& wait, TimePoint now) {
  const int64_t limit_ms = warn_after_ms_ + (wait.missing[0] == kUnknownRanks ? kAnswerMs : 0);
  if (wait.is_reported_by_peer || wait.waited_ms < limit_ms || !IsDue(warned_, kWarnAgainMs, now)) return;
  warned_ = now;
  const bool one = wait.missing.size() == 1 && wait.missing[0] != kUnknownRanks;
  const bool names_ranks = wait.missing[0] != kOwnDevice && wait.missing[0] != kOwnLibrary;
  const std::string look = !names_ranks ? "" : one ? "look at its output first; " : "look at their output first; ";
  Log(LogLevel::kWarning, NamesOf(wait.missing, wait.reason), (one ? " has" : " have"), " kept ",
      wait.operation->Title(), " waiting for ", Seconds(wait.waited_ms), "; ", look,
      "raise FARANDOLE_WARN_AFTER if that is normal");
}

// All ranks raise this error, so its text must make sense on every rank.
EpochEnd StallInspector::DeadlineEnd(const Wait& wait, const std::vector<Absence>& needed) const {
  std::string names = NamesOf(wait.missing, wait.reason);
  if (names.back() == ',') names.pop_back();  // the clause ends here
  const std::string how = DescribeMutualWait(world_->rank, wait.missing, needed);
  const int culprit = how.empty() && wait.missing[0] >= 0 ? wait.missing[0] : -1;
  return {{Code::kDeadline, wait.operation->Title(), " has waited ", Seconds(wait.waited_ms), " on rank ", world_->rank,
           " for ", names, how, "; raise FARANDOLE_TIMEOUT if that is normal"},
          culprit};
}

std::string StallInspector::NamesOf(const std::vector<int>& ranks, const std::string& reason) const {
  if (ranks[0] == kOwnDevice || ranks[0] == kOwnLibrary) return reason;
  if (ranks[0] == kUnknownRanks)
    return coordinator_ != nullptr ? "other ranks"
                                   : "ranks that " + world_->NameOf(kCoordinatorRank) + " has not named";
  std::string names;
  for (size_t i = 0; i < std::min(kMaxNamed, ranks.size()); ++i)
    names += (i == 0 ? "" : ", ") + world_->NameOf(ranks[i]);
  if (ranks.size() > kMaxNamed) names += " and " + std::to_string(ranks.size() - kMaxNamed) + " more";
  return names;
}

// ---- events

void StallInspector::On(const Negotiation::Event& event) {
  if (event.kind == Negotiation::Event::kAsked) return operations_->diagnosis.OnAsked(event.rank);
  const Answer& answer = event.answer;
  if (answer.rank == Answer::kNobody) return OnAbsent(answer.absences);
  uint64_t entered = 0;
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    entered = operations_->entered;
  }
  operations_->diagnosis.OnAnswered({answer.rank, entered, answer.text});
}

}  // namespace farandole
