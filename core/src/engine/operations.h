// The state that submitting threads share with the progress loop: the negotiation, the operations in flight, and the
// reason why no more can begin.
//
//   Engine::Submit -> Enter -> Negotiation::Submit (a ticket) -> Begin (in flight) -> Negotiation::Arrive (counted)
//                       \--> deferred, while its name is in flight -> Enter
//
// Thread safety: any thread, except where a comment says "driver". The driver submits, too, when this rank has joined
// and is invited to an operation.
//
// Invariants:
// 1. Locks are taken in this order: ProgressLock, `mutex`.
// 2. An operation ends without `mutex`, since `done` may submit the next operation.
// 3. Once is_broken is true, `broken` does not change.
// 4. in_flight counts the operations that have begun, until their end is claimed. So where it is 0, all have been
//    claimed, but a thread may still be in the `done` of one.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/waiting.h"
#include "controller/negotiation.h"
#include "operation/diagnosis.h"
#include "operation/naming.h"
#include "operation/operation.h"
#include "world/world.h"

namespace farandole {

// Operations by ticket. One thread at a time.
class OperationsByTicket {
 public:
  // Allocates the slot at the index, if needed, so that Insert does not throw.
  void Reserve(size_t index) {
    if (index >= operations_.size()) operations_.resize(index + 1);
  }
  // REQUIRES: Reserve was called for the index of its ticket.
  void Insert(const OperationPtr& operation) {
    operations_[IndexOf(operation->admission.ticket)] = operation;
    ++count_;
  }
  // Returns null if the operation has been taken.
  Operation* Find(Ticket ticket) const {
    const size_t index = IndexOf(ticket);
    return IsAt(index, ticket) ? operations_[index].get() : nullptr;
  }
  // Removes and returns the operation, or returns null.
  OperationPtr Take(Ticket ticket) {
    const size_t index = IndexOf(ticket);
    if (!IsAt(index, ticket)) return nullptr;
    --count_;
    return std::move(operations_[index]);
  }
  std::vector<OperationPtr> All() const {
    std::vector<OperationPtr> all;
    for (const OperationPtr& operation : operations_) {
      if (operation) all.push_back(operation);
    }
    return all;
  }
  bool empty() const { return count_ == 0; }

 private:
  bool IsAt(size_t index, Ticket ticket) const {
    return index < operations_.size() && operations_[index] && operations_[index]->admission.ticket == ticket;
  }

  std::vector<OperationPtr> operations_;  // by index
  size_t count_ = 0;
};

// Calls that this rank will not make for now, see Engine::Exclude.
struct ExcludedCalls {
  int set = 0;
  std::string prefix;       // of their names, see IsTitleOf
  std::string meeting;      // name of the barrier that each rank of the set enters after its last such call
  std::string why, advice;  // for the error when another rank waits for this one in such a call
};

// An unnamed operation, and the operation in flight that has its name.
struct Deferred {
  OperationPtr operation, before;
};

struct Operations {
  explicit Operations(World* its_world, const Negotiation::Limits& limits = {})
      : world(its_world), negotiation(its_world->layout, its_world->rank, its_world->node->control_memory(), limits) {}

  // Enters an operation into the negotiation. A known name is counted, an unknown one described, and the data of a
  // small operation are written. An unnamed operation gets its name, and is deferred while that is in flight. polling:
  // the caller waits next, and calls RequestDoorbells before it sleeps, so it needs no wake-up until then.
  Status Enter(const OperationPtr& operation, bool polling);

  // Enters a blocking call of a small allreduce whose name all ranks know, and polls for the others `pauses` times, at
  // least once. Returns false, and does nothing, if the call needs an operation that owns its request. Otherwise the
  // call has succeeded if *operation is null; else wait for *operation. If it throws, the epoch must end if *operation
  // is set, which has not begun then; else nothing has happened.
  bool EnterBorrowed(const RequestView& request, OperationPtr* operation);

  // Begins this rank's join.
  Status Join(const OperationPtr& operation);
  // Tells rank 0 of the join, once all earlier operations of this rank are done. Returns whether it did. Driver only.
  bool AnnounceJoin();

  // This rank has joined, and takes part in the others' operation, which the negotiation has submitted. Driver only.
  void EnterInvited(const Negotiation::Event& event);

  // Returns the first deferred operation whose name is free, or null. It stays deferred until Enter. Driver only.
  OperationPtr FindDeferred();

  // Fails a call that this rank cannot make, see Engine::Refuse. Under the lock; the caller wakes the driver.
  void Refuse(int set, const std::string& name, const std::string& site, const std::string& why);
  void RefuseRemoval(const Operation& operation, const std::string& why);  // by the members of the set alone

  // Notes that an operation of this rank fails, or is refused, because of a lost rank. Under the lock.
  void RecordLostRank();

  // Asks the other ranks to ring this rank's doorbell: the last one to write data for one of its small operations does.
  // Also rings those whose shares are missing, since their threads may have something else to do.
  // A caller that sleeps itself then arms the doorbell, and polls once more afterwards. Without memory, the epoch ends.
  void RequestDoorbells() noexcept;

  // Completes a small operation if all ranks have written their data and no other thread has completed it; in two
  // phases it may first need the other ranks' shares. Returns whether the operation, of any kind, is done.
  bool Poll(const OperationPtr& operation);
  // Goes on with all small operations that are ready. Returns whether there were any. Driver only.
  bool AdvanceAllSlots();
  // Goes on with a small operation for which all data are there, as the log says. Driver only: its buffer slots are
  // this rank's until the driver reads the log again or, in two phases, until it is complete.
  void TakeSlots(Ticket ticket);

  // Removes and returns the operation, which the negotiation has ended. Returns null if it has failed meanwhile. Under
  // the lock.
  OperationPtr TakeEnded(Ticket ticket) {
    negotiation.Release(ticket);
    return by_ticket.Take(ticket);
  }

  // Marks the operation as in flight. Under the lock.
  void Begin(Operation* operation, Operation::State state) {
    if (operation->state() == Operation::State::kMade) in_flight.fetch_add(1);
    operation->set_state(state);
  }
  // Ends an operation, unless another thread does. See invariant 2.
  void Complete(const OperationPtr& operation, Status status) {
    Operation::State was;
    if (!operation->ClaimEnd(&was)) return;
    // Before done(): then the caller may shut down at once.
    if (was != Operation::State::kMade) in_flight.fetch_sub(1);
    operation->Complete(std::move(status), true);
    waiting.Notify();
  }

  // Ends a complete operation, perhaps in another thread than the driver, which it wakes: a deferred operation may wait
  // for the name, or the coordinator for the id.
  void CompleteOk(const OperationPtr& operation);

  void CountBytes(uint64_t bytes) {  // under the lock, which saves an atomic addition
    bytes_submitted.store(bytes_submitted.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }

  World* const world;

  std::mutex mutex;

  // ---- under `mutex`
  Negotiation negotiation;  // negotiation.h says which calls need no lock
  Naming naming;
  OperationsByTicket by_ticket;               // submitted, not yet taken by the driver
  std::vector<OperationPtr> early;            // arrived; the driver has not sent their data yet
  std::deque<Deferred> deferred;              // in order of submission
  OperationPtr join;                          // this rank's join, from its submission to its end
  uint64_t entered = 0;                       // how often this rank has submitted an operation
  Status broken;                              // invariant 3: also without the lock, once is_broken is true
  int broken_by = -1;                         // likewise: the rank to blame; -1: none
  std::map<int, Status> lost;                 // ranks that have left or died, and how; only the first blocks operations
  bool needed_lost_rank = false;              // an operation of this rank failed, or was refused, because of that rank
  std::map<int64_t, ExcludedCalls> excluded;  // by the number that Engine::Exclude returned
  OperationPtr spare;  // for borrowed operations that end before another thread has a reference to them

  // ---- driver only
  std::optional<int> last_to_join;  // set by the end of a join in the log: `join` waits only for what is in flight

  // ---- set before the driver starts
  int pauses = 0;  // before a waiting thread yields; 0 if there are more ranks than cores (waiting.h)
  std::unique_ptr<FlightRecorder> recorder;  // may be null

  // ---- any thread. What changes together with a member above changes under `mutex`, too
  std::atomic<bool> is_broken{false};     // `broken` is set
  std::atomic<bool> is_over{false};       // is_broken, and not only because a rank has left in good order
  std::atomic<bool> has_early{false};     // `early` is not empty
  std::atomic<bool> has_deferred{false};  // `deferred` is not empty
  std::atomic<bool> wants_join{false};    // `join` is set, and rank 0 does not know yet
  std::atomic<int> in_flight{0};          // deferred or submitted operations
  // The cause of an exception that the epoch cannot survive. The driver ends the epoch, then resets it to null.
  std::atomic<const char*> thrown{nullptr};
  // Threads submit through the C interface, perhaps a framework's: nobody knows what else they may call.
  std::atomic<bool> has_native_callers{false};
  std::map<int, int64_t> wait_limits_ms;  // by process set; guarded by `mutex`
  // Half of it is how long a wait may take before other ranks are asked who is missing.
  std::atomic<int64_t> shortest_limit_ms{std::numeric_limits<int64_t>::max()};
  std::atomic<uint64_t> bytes_submitted{0};
  std::atomic<uint64_t> messages_sent{0};
  WaitList waiting;
  BlockedThreads blocked;
  DiagnosisChannel diagnosis;

 private:
  struct Outcome;

  Status EnterLocked(const OperationPtr& operation, bool polling, Outcome* outcome);
  // No-op if the operation is not deferred.
  void RemoveDeferred(const OperationPtr& operation);
  Status CanRemove(int set) const;
};

// The cause of an exception, for messages.
const char* CauseOf(const std::exception& thrown);

}  // namespace farandole
