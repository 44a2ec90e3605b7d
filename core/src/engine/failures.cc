#include "engine/failures.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/failpoint.h"

namespace farandole {
namespace {

std::string LookAt(int rank) { return "; look at rank " + std::to_string(rank) + "'s output first"; }

}  // namespace

EpochEnd EndBecauseOf(const World& world, const Status& status) {
  return {{status.code(), world.NameOf(world.rank), ": ", status.message()}, world.rank};
}

// ---- evidence, and whom it accuses

EpochEnd FailureMonitor::OnLeft(int rank) {
  liveness_.OnLeft(rank, Now());
  const std::string why = world_->NameOf(rank) + " has left the job (its script ended or called shutdown)";
  return {{Code::kPeerLost, why, LookAt(rank)}, rank};
}

bool FailureMonitor::FindBrokenPeers() {
  if (held_) return true;
  bool found = liveness_.suspects_somebody();
  for (int r = 0; r < world_->size; ++r) {
    if (liveness_.HasLeft(r) || !world_->transport->IsBroken(r)) continue;
    liveness_.OnConnectionClosed(r, Now());
    found = true;
  }
  return found;
}

// A rank that said in the log that it leaves is leaving, even if this rank cannot read the log that far.
std::optional<EpochEnd> FailureMonitor::FindFailure(TimePoint now) {
  {
    std::lock_guard<std::mutex> lock(operations_->mutex);
    for (int rank : operations_->negotiation.Leaving()) liveness_.OnLeaving(rank);
  }
  const auto failed = liveness_.FindFailedRank(now);
  if (!failed) return std::nullopt;
  const std::string name = world_->NameOf(failed->rank);
  const bool ended = failed->evidence == Liveness::Evidence::kProcessEnded;
  const std::string what =
      ended ? name + " died" : "the connection to " + name + " was lost; it died or its network did";
  return EpochEnd{{Code::kPeerLost, what, LookAt(failed->rank)}, failed->rank, !ended};
}

// ---- the reason

// Wakes members that sleep; they read the word in their next pass.
bool FailureMonitor::WriteAbortWord(const EpochEnd& failure) {
  AbortWord& word = world_->node->abort_word();
  if (word.set()) return false;
  word.Set(failure.status.code(), failure.culprit, failure.status.message());
  world_->node->RingOthers();
  return true;
}

EpochEnd FailureMonitor::ReadAbortWord() const {
  const AbortWord& word = world_->node->abort_word();
  return {{static_cast<Code>(word.code), word.text}, word.culprit};
}

void FailureMonitor::Hold(const EpochEnd& failure, TimePoint now) {
  if (held_ && (!held_->is_guessed || failure.is_guessed)) return;
  held_ = failure;
  held_until_ = now + kConfirmationTimeout;
}

std::optional<EpochEnd> FailureMonitor::TakeUnconfirmed(TimePoint now) {
  if (!held_ || now < held_until_) return std::nullopt;
  return std::exchange(held_, std::nullopt);
}

// Submitters check is_broken under the same lock, so no operation enters after this.
void FailureMonitor::MarkBroken(const EpochEnd& failure) {
  FRD_FAILPOINT("engine.break");
  std::lock_guard<std::mutex> lock(operations_->mutex);
  MarkLocked(failure);
}

int FailureMonitor::MarkBrokenIfIdle(const EpochEnd& failure) {
  FRD_FAILPOINT("engine.break");
  std::lock_guard<std::mutex> lock(operations_->mutex);
  const int pending = operations_->in_flight;
  if (pending == 0) MarkLocked(failure);
  return pending;
}

void FailureMonitor::MarkLocked(const EpochEnd& failure) {
  if (failure.culprit >= 0) operations_->lost.emplace(failure.culprit, failure.status);
  if (operations_->broken.ok()) {
    operations_->broken = failure.status;
    operations_->broken_by = failure.culprit;
  }
  operations_->is_broken = true;
}

// ---- operations that fail

// An operation begins once all ranks of its set have come, except for those that have joined. A rank that has left
// never comes.
bool FailureMonitor::OthersMayBegin() const {
  const std::vector<int> left = Left();
  std::lock_guard<std::mutex> lock(operations_->mutex);
  if (operations_->join && !operations_->wants_join && !operations_->last_to_join) return true;
  const std::vector<OperationPtr> all = operations_->by_ticket.All();
  return std::any_of(all.begin(), all.end(), [&](const OperationPtr& operation) {
    const ProcessSet& set = *operation->admission.set;
    return std::none_of(left.begin(), left.end(), [&](int rank) { return set.PositionOf(rank) >= 0; });
  });
}

void FailureMonitor::TakeWaiting(const EarlySums* spared, std::vector<OperationPtr>* waiting) {
  const std::vector<int> left = Left();
  std::lock_guard<std::mutex> lock(operations_->mutex);
  const std::vector<OperationPtr> all = operations_->by_ticket.All();
  waiting->reserve(waiting->size() + all.size() + operations_->deferred.size() + 1);  // nothing is lost from here on
  for (const OperationPtr& operation : all) {
    if (spared != nullptr && spared->MayComplete(*operation, left)) continue;
    waiting->push_back(operations_->by_ticket.Take(operation->admission.ticket));
  }
  for (Deferred& each : operations_->deferred) waiting->push_back(std::move(each.operation));
  operations_->deferred.clear();
  operations_->has_deferred = false;
  if (spared != nullptr && operations_->last_to_join) return;  // the join no longer waits for other ranks
  if (operations_->join) waiting->push_back(std::move(operations_->join));
  operations_->join.reset();
  operations_->last_to_join.reset();
  operations_->wants_join = false;
}

std::vector<int> FailureMonitor::Left() const {
  std::vector<int> left;
  for (int r = 0; r < world_->size; ++r) {
    if (liveness_.HasLeft(r)) left.push_back(r);
  }
  return left;
}

// ---- sentences

EpochEnd FailureMonitor::FirstCauseOf(EpochEnd end) const {
  if (end.status.code() != Code::kPeerLost || !operations_->is_broken) return end;
  return {{Code::kPeerLost, operations_->broken.message()}, operations_->broken_by};
}

EpochEnd FailureMonitor::ShutdownEnd(int pending) const {
  return FirstCauseOf(
      {{Code::kPeerLost, world_->NameOf(world_->rank), " shut down with ", pending, " operations in flight"},
       world_->rank});
}

// A reason that speaks of the operation itself needs no other words.
Status FailureMonitor::FailureOf(const Operation& operation, const Status& reason) const {
  const std::string title = operation.Title();
  if (reason.message().compare(0, title.size() + 1, title + " ") == 0) return reason;
  return {reason.code(), title, " failed on rank ", world_->rank, ": ", reason.message()};
}

}  // namespace farandole
