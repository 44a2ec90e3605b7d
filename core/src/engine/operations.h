// Operations holds the state that submitting threads share with the progress loop: the negotiation, the operations in
// flight, and the reason why no more begin. Its functions enter an operation into the negotiation, which describes it,
// counts it, or, when it is small, puts its data where all members fold it.
//
// Any thread; the driver submits, too, when this rank has joined and was invited. Lock order: the ProgressLock, the
// lock of Naming, then `mutex`.
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
  // There may be one blocking call that is no operation yet; it becomes one when a function below needs it.
  bool has_call() const { return call_ != nullptr; }
  void Put(SmallCall* call) { call_ = call; }
  // Returns the call if `ticket` is current, else null.
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
    // The negotiation is done with the operation before, but the driver has still to take it.
    if (slot) late_[slot->admission.ticket] = std::move(slot);
    slot = operation;
    ++count_;
  }
  // Returns the operation if it is there, else null.
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

// Names the operations to which the user gave no name. Any thread.
//
// The ranks' unnamed operations are paired by their sequence numbers, which count in each process set; changes of
// process sets count in set 0. The name consists of the signature and the sequence number modulo a window, so that a
// program that repeats its calls finds all of them known, in any mix. With more in flight than a window has names, the
// next operation waits for the one that has its name: under another name it would not meet the ranks whose former
// operation is done already.
//
// The window of small allreduces has one name, whose memory stays in the caches, until the caller of one does not wait.
// Should the callers of the ranks differ in that, so do their names; then rank 0 pairs the operations by their numbers,
// and tells all ranks to widen the window.
class Naming {
 public:
  // Names the operation. Returns the operation in flight that has the same name, or null: the new one must not begin
  // before that is done. Notes in the operation whether it still counts as awaited.
  OperationPtr Name(const OperationPtr& operation);
  // From here on the operations of this signature have all names.
  void Widen(const Signature& signature);

  class Turn;  // for a call that is no operation yet

  SequenceNumbers sequence_numbers() const;
  // After a join: counts the operations that this rank missed.
  void CatchUp(const SequenceNumbers& sequence_numbers);
  void Forget(int set);

 private:
  struct Place {
    std::string name;
    std::weak_ptr<Operation> latest;
  };
  using Window = std::vector<Place>;  // of the unnamed operations of one signature
  template <typename AnyRequest>
  Place& PlaceFor(const AnyRequest& request, int64_t sequence_number, bool awaited);
  void ForgetIdleWindows();

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Window> windows_;  // by the signature's fingerprint
  Signature latest_signature_;
  Window* latest_window_ = nullptr;  // that of the latest signature
  SequenceNumbers next_sequence_number_;
};

// The next name and number of a request's unnamed operations, kept from all others while it lives. Only Take uses them
// up: a call that cannot be entered leaves them to the operation that takes its place.
class Naming::Turn {
 public:
  Turn(Naming* naming, const RequestView& request);

  // False where an operation in flight has the name, and for the first one of a set, whose name no rank knows.
  bool is_free() const { return place_ != nullptr; }
  // REQUIRES: is_free()
  const std::string& name() const { return place_->name; }
  int64_t sequence_number() const { return *next_; }
  void Take(const OperationPtr& became) {  // null: the call is over
    place_->latest = became;
    ++*next_;
  }

 private:
  const std::lock_guard<std::mutex> lock_;
  int64_t* next_ = nullptr;
  Place* place_ = nullptr;
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
  std::vector<OperationPtr> eager;  // arrived at; the driver has still to put their data
  std::vector<Deferred> deferred;   // in the order in which they were submitted
  OperationPtr join;                // this rank's join, from its submission to its end
  uint64_t entered = 0;             // how often this rank has submitted an operation
  Status broken;
  int broken_by = -1;            // the rank to blame; -1: none is
  bool has_missed_lost = false;  // an operation of this rank failed, or was refused, because of that rank

  int pauses = 0;  // of a thread that waits, before it yields; 0 where there are more ranks than cores (driver.h)

  Naming naming;
  std::unique_ptr<FlightRecorder> recorder;  // null: operations are not recorded

  std::atomic<bool> is_broken{false};     // `broken` is set and will not change
  std::atomic<bool> has_eager{false};     // `eager` is not empty
  std::atomic<bool> has_deferred{false};  // `deferred` is not empty
  std::atomic<bool> wants_join{false};    // `join` is set and rank 0 does not know yet
  std::atomic<int> in_flight{0};          // operations not completed, except a call within Enter

  Blocked blocked;
  // Threads submit by the C interface, perhaps a framework's: it is not known what they wait for.
  std::atomic<bool> has_native_callers{false};

  void CountBytes(uint64_t bytes) {  // under the lock, which spares an atomic addition
    bytes_submitted.store(bytes_submitted.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  std::atomic<uint64_t> bytes_submitted{0};
  std::atomic<uint64_t> messages_sent{0};
};

// polling: the caller waits for the operation next and calls AskForBells before it sleeps, so it needs no wake-up until
// then.
Status Enter(World* world, Operations* operations, const OperationPtr& operation, bool polling);

// Enters a call at which the caller looks next. The call is over already when the others arrive within as many looks as
// there are `pauses`, at least one, with a pause between two looks. Returns false, and does nothing, when the call must
// be an operation from the beginning.
bool Enter(World* world, Operations* operations, SmallCall* call);

// Enters the operation once `before`, which has its name, is done. Any thread.
Status Defer(World* world, Operations* operations, const OperationPtr& operation, OperationPtr before);
// Returns the deferred operations that can be entered now. Only the driver calls it.
std::vector<OperationPtr> TakeDeferred(Operations* operations);

// Notes that an operation of this rank fails, or is refused, because of a lost rank. Under the lock.
void MissLost(Operations* operations);

// Records this rank's join, which does not go through Enter. Under the lock.
void RecordJoin(Operations* operations, Operation* join);

// Marks this rank as sleeping, so that the last rank to put data for one of its small operations rings its bell.
// REQUIRES: the caller arms the bell afterwards, and then looks once more.
void AskForBells(Operations* operations);

// Call it after a caller, not the driver, has completed an operation: a deferred one may wait for its name.
void WakeForDeferred(World* world, const Operations& operations);

// Completes the small operation when all have put their data and no other thread has completed it. Any thread.
bool CompleteIfReady(World* world, Operations* operations, const OperationPtr& operation);
bool CompleteIfReady(World* world, Operations* operations, SmallCall* call);
// Completes all small operations that are ready. Returns whether there were any. Only the driver calls it.
bool CompleteReady(World* world, Operations* operations);
// Completes a small operation that has ended in the negotiation: its span is this rank's until the driver reads the log
// again.
void CompleteSmall(World* world, Operations* operations, Ticket ticket);

}  // namespace farandole
