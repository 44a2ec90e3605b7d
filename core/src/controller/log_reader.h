// Reads the node's log: batches to run, ids that are evicted, ranks that leave, the end of a join.
//
//   kReady                        its batch ends at a position of the log; the first reader decides where
//   kReadyInterNode               its batch ends at the next kEndOfBatch
//   kEvicted, kLeft, kJoinEnd     take effect where they stand
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "controller/admission.h"
#include "controller/messages.h"
#include "controller/name_table.h"
#include "controller/node_memory.h"

namespace farandole {

// A rank without data, which takes part in the operations of the others until all have joined. Owns whether this rank
// has joined. Thread rule: the lock of Operations.
//
// Rank 0 closes the ids of a rank that joins, and assigns ids only for single uses until all have joined. So a rank
// that has joined counts no arrivals, and ASSIGN is its invitation. Rank 0 sends that after it has heard of the join.
// So it hears the JOIN of a rank that helps with an operation before the JOINs of the ranks that have submitted it, and
// never reports the helper as the last to join.
class JoinState {
 public:
  JoinState(const NodeMembers& node, Outbox* outbox) : node_(node), outbox_(*outbox) {}

  bool joined() const { return joined_; }
  bool HasResult() const { return result_.has_value(); }

  // REQUIRES: nothing in flight.
  void Begin(const SequenceNumbers& sequence_numbers) {
    joined_ = true;
    outbox_.Send(Encode(MessageKind::kJoin, Join{node_.rank(), sequence_numbers}));
  }
  // Handles JOIN_END. Returns false for an impossible message.
  bool OnResult(Join result) {
    if (!joined_ || result.rank < 0 || result.rank >= node_.world().size()) return false;
    result_ = NegotiationEvent::OfRank(NegotiationEvent::kJoinEnd, result.rank);
    result_->sequence_numbers = std::move(result.sequence_numbers);
    return true;
  }
  // Ends the join, where the log says so. REQUIRES: HasResult
  void End(NegotiationEvents* events) {
    joined_ = false;
    events->push_back(std::move(*result_));
    result_.reset();
  }

 private:
  const NodeMembers& node_;
  Outbox& outbox_;
  bool joined_ = false;
  std::optional<NegotiationEvent> result_;
};

// Owns how far this rank has read, and the batches that it is reading. It alone applies the log to names, ids and
// joins.
//
// Thread rule: the holder of the ProgressLock, under the lock of Operations; HasNews needs the ProgressLock alone.
class LogReader {
 public:
  LogReader(NodeMemory* memory, NameTable* names, UsesInFlight* in_flight, JoinState* join, Outbox* outbox)
      : memory_(*memory), names_(*names), in_flight_(*in_flight), join_(*join), outbox_(*outbox) {
    finished_.reserve(kMaxIds);
  }

  uint64_t head() const { return head_; }  // this rank has read everything before it
  bool HasNews() const { return HasFinished() || memory_.log.Read(head_).has_value(); }
  bool HasFinished() const { return has_finished_.load(std::memory_order_relaxed); }  // any thread

  // Reads the log as far as it can be understood.
  void Read(NegotiationEvents* events);
  // Tells the members that append how far this rank has read.
  void PublishHead() { memory_.log.PublishHead(head_); }
  // Gives up the buffers of forgotten ids. REQUIRES: the events of the last Read are handled.
  bool ReleaseFinished(NegotiationEvents* events);

  // Forgets the id of a name whose last use has ended, if the id is being evicted.
  bool ForgetIfEvicting(Name* name);  // whether it was
  // Adds the ranks that have left, as entries that this rank has not read say.
  void AddLeaving(std::set<int>* leaving) const;

 private:
  bool Consume(const LogEntry& entry, NegotiationEvents* events);
  void FindEnd();
  uint64_t RunEnd() const;
  bool HandleReady(Name* name, int id, NegotiationEvent* batch);
  static void Emit(NegotiationEvent* batch, NegotiationEvents* events);
  static bool IsCompleted(const Name& name, uint8_t uses);  // its use in flight, as an entry of its evicted id says
  void OnEvicted(Name* name, const LogEntry& entry, NegotiationEvents* events);
  bool EndUse(Name* name, uint8_t uses, NegotiationEvents* events);
  void Forget(int id);

  NodeMemory& memory_;
  NameTable& names_;
  UsesInFlight& in_flight_;
  JoinState& join_;
  Outbox& outbox_;
  uint64_t head_ = 0;
  uint64_t batch_end_ = 0;                    // where the current batch of sets inside the node ends
  uint64_t next_batch_ = 0;                   // the number of the next one
  NegotiationEvent intra_node_, inter_node_;  // what this rank runs of the current batches
  std::atomic<bool> has_finished_{false};     // finished_ is not empty
  std::vector<int> finished_;  // forgotten, but the buffers may be needed until the events of the last Read are handled
};

}  // namespace farandole
