// Operations holds the state that submitting threads share with the progress loop: the negotiation, the operations in
// flight, and the reason why no more begin. Its functions bring an operation to its place in the negotiation, where it
// is described, counted in, or, when it is small, put where all members fold it.
//
// Any thread; the driver submits, too, when this rank was invited after it had joined. Lock order: the ProgressLock,
// then `mutex`.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/negotiation.h"
#include "engine/operation.h"
#include "engine/small.h"
#include "engine/stacks.h"
#include "world/world.h"

namespace farandole {

// Operations by ticket. One thread at a time.
class OperationsByTicket {
 public:
  // One blocking call that is no operation yet; it becomes one when anything below asks for it.
  bool has_call() const { return call_ != nullptr; }
  void Put(SmallCall* call) { call_ = call; }
  // Null when it is another one's, or no longer there.
  SmallCall* TakeCall(Ticket ticket) {
    return call_ != nullptr && call_->admission.ticket == ticket ? std::exchange(call_, nullptr) : nullptr;
  }
  void MakeOperation() {
    if (call_ == nullptr) return;
    const OperationPtr operation = call_->Become();
    call_ = nullptr;
    Put(operation);
  }

  void Put(const OperationPtr& operation) {
    const size_t place = PlaceOf(operation->admission.ticket);
    if (place >= operations_.size()) operations_.resize(place + 1);
    OperationPtr& slot = operations_[place];
    // The negotiation is done with the one before, but the driver has still to take it.
    if (slot) late_[slot->admission.ticket] = std::move(slot);
    slot = operation;
    ++count_;
  }
  // Null when there is none, or no longer.
  OperationPtr Take(Ticket ticket) {
    MakeOperation();
    const size_t place = PlaceOf(ticket);
    const bool here =
        place < operations_.size() && operations_[place] && operations_[place]->admission.ticket == ticket;
    if (!here) return TakeLate(ticket);
    --count_;
    return std::move(operations_[place]);
  }
  std::vector<OperationPtr> All() {
    MakeOperation();
    std::vector<OperationPtr> all;
    for (const OperationPtr& operation : operations_) {
      if (operation) all.push_back(operation);
    }
    for (const auto& [ticket, operation] : late_) all.push_back(operation);
    return all;
  }
  bool empty() const { return count_ == 0 && call_ == nullptr; }

 private:
  OperationPtr TakeLate(Ticket ticket) {
    const auto found = late_.find(ticket);
    if (found == late_.end()) return nullptr;
    OperationPtr operation = std::move(found->second);
    late_.erase(found);
    --count_;
    return operation;
  }

  std::vector<OperationPtr> operations_;  // by place
  std::unordered_map<Ticket, OperationPtr> late_;
  size_t count_ = 0;
  SmallCall* call_ = nullptr;
};

// Names for operations to which the user gave none. Any thread.
//
// They are paired with the other ranks' by their sequence numbers, counted for each process set; changes of process
// sets are, too, among those of set 0. The name is made of the signature and the sequence number modulo a window, so
// that a program that repeats its calls finds all of them known, whatever the mix. With more in flight than a window
// has names, the next waits for the one that has its name: with a name of its own it would miss ranks whose former
// operation is done already, until time has passed.
class Naming {
 public:
  // Null, or the operation in flight that has the name: this one must not begin before it is done.
  OperationPtr Name(const OperationPtr& operation);

  SequenceNumbers sequence_numbers() const;
  // After a join: as if this rank had submitted all that it missed.
  void CatchUp(const SequenceNumbers& sequence_numbers);
  void Forget(int set);

 private:
  // Unnamed operations of one signature that took a name of the window last.
  using Window = std::vector<std::weak_ptr<Operation>>;
  void ForgetIdleWindows();

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Window> windows_;
  SequenceNumbers next_sequence_number_;
};

// An unnamed operation, and the one that has its name.
struct Deferred {
  OperationPtr operation, before;
};

struct Operations {
  Operations(const Layout& layout, int rank, std::byte* board, const Negotiation::Limits& limits)
      : negotiation(layout, rank, board, limits) {}

  std::mutex mutex;  // guards everything below but the atomics and naming
  Negotiation negotiation;
  OperationsByTicket by_ticket;     // submitted, not yet taken by the driver
  std::vector<OperationPtr> eager;  // come to, the driver has still to put their data
  std::vector<Deferred> deferred;   // in the order in which they were submitted
  OperationPtr join;                // this rank's join, from its submission to its end
  uint64_t entered = 0;             // how often this rank has come to an operation
  Status broken;
  int broken_by = -1;            // the rank because of which, -1 where it is none
  bool has_missed_lost = false;  // an operation of this rank failed, or was refused, because of that rank

  Naming naming;

  std::atomic<bool> is_broken{false};     // `broken` is set and will not change
  std::atomic<bool> has_outgoing{false};  // a submitter left a message for the coordinator
  std::atomic<bool> has_eager{false};     // `eager` is not empty
  std::atomic<bool> has_deferred{false};  // `deferred` is not empty
  std::atomic<bool> wants_join{false};    // `join` is set and rank 0 does not know yet
  std::atomic<int> in_flight{0};          // operations not completed, but for a call within Enter

  Blocked blocked;
  // Somebody submits by the C interface: threads of a framework, of which nobody knows what they wait for.
  std::atomic<bool> has_native_callers{false};

  std::atomic<uint64_t> bytes_submitted{0};
  std::atomic<uint64_t> messages_sent{0};
};

// polling: the caller waits for the operation next and does not sleep before it has called AskForBells, so nobody needs
// to wake it.
Status Enter(World* world, Operations* operations, const OperationPtr& operation, bool polling);

// A call that is to be looked at next; it is over already when the others come within so many `looks` (at least one),
// with a pause before each. False, and nothing is done, when it must be an operation from the beginning.
bool Enter(World* world, Operations* operations, SmallCall* call, int looks);

// To be entered once `before`, which has its name, is done. Any thread.
Status Defer(World* world, Operations* operations, const OperationPtr& operation, OperationPtr before);
// Those that can be entered now. The driver.
std::vector<OperationPtr> TakeDeferred(Operations* operations);

// Marks this rank as one that sleeps: the last rank to put to one of its small operations rings it. REQUIRES: before
// the bell is armed, and then another look.
void AskForBells(Operations* operations);

// After a caller, not the driver, has completed an operation: another one may have waited for its name.
void WakeForDeferred(World* world, const Operations& operations);

// Completes the small operation when all have put their data and nobody else has completed it. Any thread.
bool CompleteIfReady(World* world, Operations* operations, const OperationPtr& operation);
bool CompleteIfReady(World* world, Operations* operations, SmallCall* call);
// All of them. True when there were any. The driver.
bool CompleteReady(World* world, Operations* operations);
// One that the negotiation says is ready, and has ended: its span is this rank's until the driver reads the log again.
void CompleteSmall(World* world, Operations* operations, Ticket ticket);

}  // namespace farandole
