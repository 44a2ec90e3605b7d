#include "engine/work_queue.h"

#include <algorithm>

#include "engine/stalls.h"
#include "reduce/reduce.h"

namespace farandole {

WorkQueue::WorkQueue(World* world, const Settings& settings, const BackendList& backend_list)
    : world_(world), settings_(settings), backends_(world, settings, backend_list), copies_(world->node->event()) {}

// Queues the copies in for the whole batch, so that they begin in the order of the log.
void WorkQueue::Add(const std::vector<ReadyOperation>& batch, std::vector<PlannedTask> tasks) {
  for (const ReadyOperation& ready : batch) copies_.Await(ready.operation);
  for (PlannedTask& task : tasks) tasks_.push_back(std::move(task));
  for (const ReadyOperation& ready : batch) {
    if (ready.operation->request.kind != OpKind::kRemoveProcessSet) continue;
    tasks_.emplace_back().operations = {ready.operation};
    tasks_.back().task.kind = OpKind::kRemoveProcessSet;
  }
}

// Only the first task moves. All ranks perform the tasks in the same order, so a later one would wait for ranks that
// are still busy with the first.
WorkQueue::Outcome WorkQueue::Run(std::vector<Ended>* ended) {
  if (failed_) return *failed_;
  Outcome outcome;
  if (tasks_.empty()) return outcome;
  if (tasks_.front().task.kind == OpKind::kRemoveProcessSet) return RemoveSet(ended);
  const FloatingPointScope scope;
  const auto fail = [this, &outcome](EpochEnd end) {
    outcome.end = std::move(end);
    failed_ = outcome;
    failed_->moved = false;
    return std::move(outcome);
  };
  PlannedTask& front = tasks_.front();
  if (running_ == nullptr) {
    bool ready = false;
    if (const Status prepared = copies_.Prepare(&front, &ready); !prepared.ok())
      return fail(EndBecauseOf(*world_, prepared));
    if (!ready) return outcome;
    Task* to_run = nullptr;
    Status started = SetUp(&front, &to_run);
    if (started.ok()) started = running_->Start(to_run);
    if (!started.ok()) return fail({started, world_->rank});
  }
  bool finished = false;
  const Status polled = running_->Poll(&outcome.moved, &finished);
  outcome.may_be_peer = !polled.ok();
  if (!polled.ok()) return fail({polled, world_->rank});
  if (outcome.moved) last_progress_ = Now();
  if (!finished) return outcome;
  outcome.moved = true;
  running_ = nullptr;
  copies_.FreeSurplus();
  FinishTask(&front, ended);
  tasks_.pop_front();
  return outcome;
}

WorkQueue::Outcome WorkQueue::RemoveSet(std::vector<Ended>* ended) {
  Outcome outcome;
  const OperationPtr& operation = tasks_.front().operations.front();
  const auto set = static_cast<int>(operation->request.ranks[0]);
  ended->push_back({operation, Status::Ok()});
  backends_.Forget(set);
  started_.erase(set);
  tasks_.pop_front();
  outcome.moved = true;
  outcome.removed_set = set;
  return outcome;
}

// Finds the backend and the task that it is to perform. The list of backends is equal on all ranks, so a number that is
// not in use is a bug.
Status WorkQueue::SetUp(PlannedTask* planned, Task** to_run) {
  FRD_RETURN_IF_ERROR(WidenIntegerAverage(planned));
  const int number = planned->task.backend;
  Task& task = planned->wide ? *planned->wide : planned->task;
  task.number = ++started_[task.set->id];
  running_ = backends_.At(number);
  last_progress_ = Now();
  RecordStart(planned);
  if (running_ == nullptr) return Internal("backend number ", number, " is not in use on this rank");
  if (number != 0) BeginInLibrary(task);
  *to_run = &task;
  return Status::Ok();
}

// This rank expects no message of another one for the task.
void WorkQueue::BeginInLibrary(const Task& task) {
  MessageTag tag;
  tag.id = task.set->id;
  tag.operation = task.number;
  tag.plan = PlanOf(task, settings_).code();
  world_->transport->Begin(tag);
}

// An operation of several tasks is over with the last of them, and once its results are where they belong.
void WorkQueue::FinishTask(PlannedTask* planned, std::vector<Ended>* ended) {
  NarrowIntegerAverage(planned);
  RecordTask(*planned);
  for (const OperationPtr& operation : planned->operations) {
    if (--operation->tasks_left > 0) continue;  // set by PlanBatch
    bool complete = false;
    const size_t first = ended->size();
    const Status status = copies_.Return(operation, &complete);
    if (complete) ended->push_back({operation, status});
    PrependTitle(ended, first);
  }
}

bool WorkQueue::PollCopies(std::vector<Ended>* ended) {
  if (!copies_.busy()) return false;
  const size_t first = ended->size();
  const bool moved = copies_.Poll(ended);
  if (running_ == nullptr) copies_.FreeSurplus();  // which would wait for a task under way
  PrependTitle(ended, first);
  return moved;
}

// The other ranks have their results, so an error of this rank's device in a copy out concerns this rank alone.
void WorkQueue::PrependTitle(std::vector<Ended>* ended, size_t first) const {
  for (size_t i = first; i < ended->size(); ++i) {
    Ended& each = (*ended)[i];
    if (each.status.ok()) continue;
    each.status = Status(each.status.code(), each.operation->Title(), " failed on rank ", world_->rank, ": ",
                         each.status.message());
  }
}

// Appends operations that end meanwhile, some perhaps with an error of their own.
void WorkQueue::AwaitCopies(std::vector<Ended>* ended) {
  const size_t first = ended->size();
  copies_.Drain(ended);
  PrependTitle(ended, first);
}

// The backend aborts first: from then on only a device touches the memory of the operations.
void WorkQueue::Cancel(std::vector<OperationPtr>* cancelled, std::vector<Ended>* ended) {
  if (running_ != nullptr) running_->Abort();
  running_ = nullptr;
  failed_.reset();
  NoteLongestSleep();
  for (PlannedTask& planned : tasks_)
    cancelled->insert(cancelled->end(), planned.operations.begin(), planned.operations.end());
  tasks_.clear();
  if (copies_.Drop()) AwaitCopies(ended);
}

// A backend that cannot name a rank says in words what it waits for. Before a task has begun, it can only wait for a
// device.
void WorkQueue::AddStalledTask(TimePoint now, std::vector<Wait>* waits) const {
  if (tasks_.empty()) return;
  const OperationPtr& operation = tasks_.front().operations.front();
  Wait wait;
  wait.operation = operation;
  wait.is_under_way = true;
  if (running_ != nullptr) {
    wait.waited_ms = MillisecondsBetween(last_progress_, now);
    wait.missing = running_->WaitingOn();
    if (wait.missing.empty()) {
      wait.reason = running_->StallReason();
      wait.missing = {wait.reason.empty() ? kUnknownRanks : kOwnLibrary};
    }
  } else if (operation->host_copy) {
    wait.waited_ms = MillisecondsBetween(std::max(last_progress_, operation->submitted), now);
    wait.missing = {kOwnDevice};
    wait.reason = operation->host_copy->device()->name() + ", which has not computed its input yet,";
  } else {
    return;
  }
  waits->push_back(std::move(wait));
}

void WorkQueue::NoteLongestSleep() {
  longest_sleep_ms_.store(running_ == nullptr ? -1 : running_->LongestSleepMs(), std::memory_order_relaxed);
}

}  // namespace farandole
