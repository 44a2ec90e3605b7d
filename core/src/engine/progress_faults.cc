// ProgressLoop: ranks that die or leave.
#include <sys/socket.h>

#include <cerrno>
#include <thread>

#include "common/failpoint.h"
#include "engine/progress_loop.h"
#include "engine/submit.h"

namespace farandole {
namespace {

constexpr int64_t kTickMs = 20;

std::string LookAt(int rank) { return "; look at rank " + std::to_string(rank) + "'s output first"; }

}  // namespace

// Together: one may have ended because of the other.
void ProgressLoop::OnDeaths(const std::vector<int>& ranks) {
  for (int rank : ranks) {
    poller_.Forget(world_->pidfds[static_cast<size_t>(rank)].get());
    liveness_.OnProcessEnded(rank);
  }
  if (!ranks.empty()) Judge(Now());
}

// The end of a connection alone is a weak sign: a rank that leaves says so on another way, which may be slower.
void ProgressLoop::OnClosed(int rank) {
  MessageStream& stream = world_->control[static_cast<size_t>(rank)];
  if (!stream.open()) return;
  poller_.Forget(stream.descriptor());
  stream = MessageStream();
  liveness_.OnControlClosed(rank, Now());
}

// A back end could not go on. The connections that have ended say who is gone; false when all are whole.
bool ProgressLoop::SuspectBrokenLinks() {
  bool found = false;
  for (int r = 0; r < world_->size; ++r) {
    const auto& link = world_->links[static_cast<size_t>(r)];
    char byte = 0;
    if (!link || link->descriptor() < 0 || liveness_.HasLeft(r)) continue;
    const ssize_t got = recv(link->descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EAGAIN)) continue;
    liveness_.OnConnectionClosed(r, Now());
    found = true;
  }
  return found;
}

void ProgressLoop::OnLeft(int rank) {
  if (rank == world_->rank) return;
  liveness_.OnLeft(rank, Now());
  // Its data came before the word that it leaves: small operations that it took part in are not broken.
  if (CompleteReady(world_, table_)) progress_lock_->NotifyWaiters();
  Break({Code::kPeerLost,
         world_->NameOf(rank) + " has left the job (its script ended or called shutdown)" + LookAt(rank)},
        rank);
}

// A rank that ends because of another's end has said so there before. After somebody has left, what is under way may
// still need the one that is lost now.
void ProgressLoop::Abort(Code code, int culprit, const std::string& reason) {
  if (!table_->is_broken || !idle()) TellAll(code, culprit, reason);
}

void ProgressLoop::TellAll(Code code, int culprit, const std::string& reason) {
  AbortWord& word = world_->group->abort_word();
  if (word.set()) return;
  word.Set(code, culprit, reason);
  world_->group->RingOthers();
  const Bytes message = Encode(Aborted{static_cast<int32_t>(code), culprit, reason});
  if (coordinator_) {
    Coordinate(world_->rank, message);
  } else {
    Send(kCoordinatorRank, message);
  }
  if (!CheckAbortWord()) End({code, reason}, culprit);  // somebody else is writing it, or has died of that
}

bool ProgressLoop::CheckAbortWord() {
  const AbortWord& word = world_->group->abort_word();
  if (!word.set()) return false;
  if (!table_->is_broken || !idle()) {
    End({static_cast<Code>(word.code), word.text}, word.culprit);
    // The member that noticed told the coordinator, unless it is the one that is gone.
    if (coordinator_ && !world_->one_group())
      Coordinate(world_->rank, Encode(Aborted{word.code, word.culprit, word.text}));
  }
  return true;
}

void ProgressLoop::End(const Status& reason, int culprit) {
  Break(reason, culprit);
  FailAll(reason, true);
}

void ProgressLoop::Break(Status reason, int culprit) {
  FRD_FAILPOINT("engine.break");
  std::lock_guard<std::mutex> lock(table_->mutex);
  if (table_->broken.ok()) {
    table_->broken = std::move(reason);
    table_->broken_by = culprit;
  }
  table_->is_broken = true;
}

// Operations that wait, not those whose tasks are under way; and those eager ones that cannot be complete any more, or
// all.
std::vector<OperationPtr> ProgressLoop::TakeWaiting(bool eager_too) {
  std::vector<int> left;
  for (int r = 0; r < world_->size; ++r) {
    if (liveness_.HasLeft(r)) left.push_back(r);
  }
  std::vector<OperationPtr> waiting;
  std::unique_lock<std::mutex> lock(table_->mutex);
  // A thread may copy from the memory of one of them without the lock; whoever hears of its end may free that.
  while (table_->negotiation.AwaitsRelease()) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  for (const OperationPtr& operation : table_->operations.All()) {
    if (!eager_too && eager_.MayComplete(*operation, left)) continue;
    waiting.push_back(table_->operations.Take(operation->plan.ticket));
  }
  for (Deferred& each : table_->deferred) waiting.push_back(std::move(each.operation));
  table_->deferred.clear();
  table_->has_deferred = false;
  if (table_->join) waiting.push_back(std::move(table_->join));
  table_->join.reset();
  table_->wants_join = false;
  return waiting;
}

// A reason that speaks of the operation itself says all.
Status ProgressLoop::FailureOf(const Operation& operation, const Status& reason) const {
  const std::string title = operation.Title();
  if (reason.message().compare(0, title.size() + 1, title + " ") == 0) return reason;
  return {reason.code(), title + " failed on rank " + std::to_string(world_->rank) + ": " + reason.message()};
}

// Completes what waits with an error; with tasks_too also what is under way.
void ProgressLoop::FailAll(const Status& reason, bool tasks_too) {
  std::vector<OperationPtr> failed = TakeWaiting(tasks_too);
  for (const OperationPtr& operation : failed) eager_.Recall(operation->plan.ticket);
  if (tasks_too) {
    if (running_ != nullptr) running_->Abort();
    running_ = nullptr;
    for (PlannedTask& planned : tasks_)
      failed.insert(failed.end(), planned.operations.begin(), planned.operations.end());
    tasks_.clear();
    copies_.Drop();
    if (copies_.SomebodyCannotWait()) AwaitCopies();
    eager_.Drop();
  }
  if (!failed.empty() && reason.code() == Code::kPeerLost) {
    std::lock_guard<std::mutex> lock(table_->mutex);
    table_->has_missed_lost = true;
  }
  for (const OperationPtr& operation : failed) {
    Finish(operation, FailureOf(*operation, reason));
  }
}

void ProgressLoop::Tick() {
  const TimePoint now = Now();
  if (MillisecondsBetween(last_tick_, now) < kTickMs) return;
  last_tick_ = now;
  Judge(now);
  // Everything that a rank that left took part in stands before that in the log, so what is still waiting waits in
  // vain; but for a mismatch, which is told by message and may come a little later.
  if (liveness_.WaitingIsVain(now)) FailAll(table_->broken, false);
  CheckDelays(now);
}

void ProgressLoop::Judge(TimePoint now) {
  if (!liveness_.suspects_somebody()) return;
  ReadLog();  // a rank may have said that it leaves
  {
    std::lock_guard<std::mutex> lock(table_->mutex);
    for (int rank : table_->negotiation.Leaving()) liveness_.OnLeaving(rank);
  }
  const auto verdict = liveness_.Judge(now);
  if (!verdict) return;
  const std::string name = world_->NameOf(verdict->rank);
  const bool ended = verdict->sign == Liveness::Sign::kProcessEnded;
  Abort(Code::kPeerLost, verdict->rank,
        (ended ? name + " died" : "the connection to " + name + " was lost; it died or its network did") +
            LookAt(verdict->rank));
}

void ProgressLoop::Leave() {
  AwaitCopies();
  const int pending = table_->in_flight;
  // Who ends because another has left says so too, so that nobody takes it for dead.
  if (pending == 0 && !world_->group->abort_word().set()) LeaveInGoodOrder();
  // What it has come to the others may still begin, and that would wait for it. The first cause is the one to tell.
  if (pending > 0) {
    const std::string early =
        world_->NameOf(world_->rank) + " shut down with " + std::to_string(pending) + " operations in flight";
    if (table_->is_broken) {
      TellAll(Code::kPeerLost, table_->broken_by, table_->broken.message());
    } else {
      TellAll(Code::kPeerLost, world_->rank, early);
    }
  }
  const Status over{Code::kNotInitialized, "this rank called shutdown"};
  Break(over, -1);
  FailAll(over, true);
}

void ProgressLoop::GiveUp(const Status& reason) {
  Abort(reason.code(), world_->rank, world_->NameOf(world_->rank) + ": " + reason.message());
  CloseConnections();
}

void ProgressLoop::LeaveInGoodOrder() {
  {
    std::lock_guard<std::mutex> lock(table_->mutex);
    table_->negotiation.Leave();
    table_->has_outgoing = true;
  }
  world_->group->RingOthers();
  SendOutgoing();
  eager_.SayFarewell();
}

void ProgressLoop::CloseConnections() {
  for (auto& link : world_->links) link.reset();
  eager_.EndSending();
  for (MessageStream& stream : world_->control) stream.EndSending();
  const TimePoint start = Now();
  for (MessageStream& stream : world_->control) {
    constexpr int64_t kPatienceMs = 100;
    const int64_t left_ms = kPatienceMs - MillisecondsBetween(start, Now());
    stream.CloseGently(left_ms > 0 ? static_cast<int>(left_ms) : 0);
  }
  eager_.Close();
}

}  // namespace farandole
