// What the driver does: reads the negotiation, plans batches, keeps the back ends busy, delivers control messages, and
// notices deaths and delays. Everything here belongs to whoever holds the progress lock; submitters share the Table.
//
//   Drive:  messages in -> coordinator (rank 0), negotiation -> log -> batches -> tasks -> back end -> operations end
#pragma once

#include <vector>

#include "engine/control.h"
#include "engine/eager.h"
#include "engine/failures.h"
#include "engine/progress_lock.h"
#include "engine/stalls.h"
#include "engine/table.h"
#include "engine/work_queue.h"
#include "world/world.h"

namespace farandole {

class ProgressLoop {
 public:
  ProgressLoop(World* world, Table* table, ProgressLock* progress_lock, const Settings& settings,
               const BackendList& backend_list);
  Status Open();  // prepares the poller and the back ends; before the first Drive
  // It cannot go on, and the others are told why; instead of Leave.
  void GiveUp(const Status& reason);

  // One pass over everything that may have something to do. True when something was done. Never blocks.
  bool Drive();
  // Sleeps until a bell, a message, a death, or the time is up, which is sooner where a back end must be asked again.
  // Needs no progress lock.
  void Sleep(int timeout_ms) const;
  // Looks at the descriptors in the next pass, whatever the interval: something woke us.
  void LookAtDescriptors() { passes_ = 0; }

  // Tells the others that this rank leaves: in good order when nothing is in flight, else as an abort. Completes what
  // is in flight.
  void Leave();
  void CloseConnections();

 private:
  // progress_loop.cc: tasks
  bool ReadLog();
  void Handle(const Negotiation::Event& event);
  void StartBatch(const Negotiation::Event& event);
  bool FinishWithoutTask(const OperationPtr& operation, const Negotiation::Item& item);
  bool EnterDeferred();
  void AcceptInvitation(const Negotiation::Event& event);
  bool CheckJoin();
  void EndJoin(const Negotiation::Event& event);
  bool AdvanceEager();
  bool PollCopies();
  bool RunTasks();
  void FinishAll(const std::vector<WorkQueue::Ended>& ended);
  OperationPtr TakeOperation(Ticket ticket);
  void Finish(const OperationPtr& operation, Status status);

  // messages and signs
  bool Look();
  void ActOnSigns();
  void Obey(const Bytes& message);
  bool SendOutgoing();

  // ranks that die or leave
  void OnLeft(int rank);
  void Abort(const EpochEnd& failure);
  void TellAll(const EpochEnd& failure);
  bool CheckAbortWord();
  void Tick();
  void Judge(TimePoint now);
  void LeaveInGoodOrder();
  void End(const EpochEnd& failure);
  void FailAll(const Status& reason, bool tasks_too);
  bool idle() const { return work_.empty() && eager_.idle(); }

  World* const world_;
  Table* const table_;
  ProgressLock* const progress_lock_;
  const Settings settings_;
  ControlPlane control_;
  WorkQueue work_;
  Eager eager_;

  FailureMonitor failures_;
  unsigned passes_ = 0;
  StallInspector stalls_;
  TimePoint last_tick_ = Now();
};

}  // namespace farandole
