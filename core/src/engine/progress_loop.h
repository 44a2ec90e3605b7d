// What the driver does: reads the negotiation, plans batches, keeps the back ends busy, delivers control messages, and
// notices deaths and delays. Everything here belongs to whoever holds the progress lock; submitters share the Table.
//
//   Drive:  messages in -> coordinator (rank 0), negotiation -> log -> batches -> tasks -> back end -> operations end
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/control.h"
#include "engine/delays.h"
#include "engine/eager.h"
#include "engine/failures.h"
#include "engine/progress_lock.h"
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
  OperationPtr Joined() const;
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

  // progress_stalls.cc
  void CheckDelays(TimePoint now);
  std::vector<Wait> Waits(TimePoint now);
  void AddJoin(TimePoint now, std::vector<Wait>* waits);
  void LearnWhoIsAbsent(TimePoint now);
  void OnAbsent(const std::vector<Absence>& absences);
  std::vector<Absence> NeededFor() const;
  std::string HowTheyNeedUs(const std::vector<int>& ranks, bool for_ever) const;
  std::vector<int> WhoIsMissing(const Operation& operation) const;
  bool AnotherTells(const Operation& operation, const std::vector<int>& missing) const;
  std::string NamesOf(const std::vector<int>& ranks, const std::string& reason) const;
  void Warn(const Delay& delay) const;
  void GiveUpWaiting(const Wait& wait, bool is_deadlock);
  std::string PlacesSince(TimePoint begin) const;
  void Ask(std::vector<int> ranks, const std::map<int, std::set<std::string>>& needed = {});
  void Answer(int asker);
  void OnAnswer(int rank, const Whereabouts& where);
  void OnRefused(int rank, const std::string& text) const;

  // progress_deadlocks.cc
  uint64_t Entered() const;
  std::vector<std::string> WaitsOnlyFor(const std::string& stacks) const;
  void NoteWhoIsStuck(int rank, const std::vector<std::string>& waits_only_for);
  const Wait* FindDeadlock(std::vector<Wait>* waits) const;
  void AskThoseThatNeedUs(const std::vector<Wait>& waits);
  void MarkMutual(std::vector<Wait>* waits) const;

  World* const world_;
  Table* const table_;
  ProgressLock* const progress_lock_;
  const Settings settings_;
  ControlPlane control_;
  WorkQueue work_;
  Eager eager_;

  FailureMonitor failures_;
  unsigned passes_ = 0;
  Delays delays_;
  std::map<std::string, std::vector<int>> absent_;  // by title: what rank 0 knows of who has not come
  std::vector<Absence> needed_;                     // what others have come to and this rank has not, as rank 0 knows
  std::deque<uint64_t> whom_entered_;  // see Table::entered: when rank 0 was asked, for each answer to come
  uint64_t needed_entered_ = 0;        // when it was asked for needed_
  struct Sought {
    uint64_t entered;              // see Table::entered
    std::set<std::string> titles;  // what the rank has come to and this one has not
  };
  std::map<int, std::deque<Sought>> sought_;  // by rank, for each answer to come
  struct Stuck {
    uint64_t entered;
    TimePoint said;
  };
  std::map<int, Stuck> stuck_;  // who waits for this rank only, while Table::entered is that
  TimePoint asked_whom_{};      // when it was last asked
  std::set<int> told_of_;       // whose stacks are to be told as well, once they are here
  Whereabouts where_;           // what this rank said when it was last asked
  TimePoint answered_{};        // when this rank last said where it is
  TimePoint asked_again_{};     // when it last asked those that wait for it
  struct Place {
    std::string frame;  // the innermost
    TimePoint seen;
  };
  std::map<int, Place> places_;  // where ranks that this one waited for said that they were
  TimePoint last_tick_ = Now();
};

}  // namespace farandole
