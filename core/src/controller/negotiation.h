// This rank's side of the negotiation: which operation has which id, what this rank has in flight, and what the node's
// log says next.
//
//   Submit ---- small ----> the buffer (slots.h), where every member sees by itself when all have come
//          |--- early ----> Arrive, and the data to all others ---> OnArrival, where they are early
//          |--- known ----> Arrive (counter) - last of the node -> the log, or the coordinator (a set across nodes)
//          \--- unknown --> DESCRIBE ------> coordinator ---------> ASSIGN, READY -> the log
//   Advance reads the log: batches to run, ids that are evicted, ranks that leave.
//
// Negotiation dispatches. Its members own the state, one each:
//
//   NameTable      names, ids, process sets            UsesInFlight     uses in flight, small operations
//   JoinState      whether this rank has joined        NodeLeader      what the first member does for its node
//   LogReader      how far the log is read, batches    Outbox           what is to be sent
//
// State machines over a node's memory and messages, without threads or sockets; tests simulate them unchanged.
//
// Thread rule: one call at a time, under the lock of Operations, but for what needs no lock: CanAdvance, HasFinished,
// has_small and outbox().empty() from any thread, HasNews from the holder of the ProgressLock. Lock order:
// ProgressLock, then the lock of Operations. Submit, the copy into the buffer and Arrive are one step under the lock
// (invariant 3 of name_table.h).
//
// After a rank has joined, OnMessage invites it to every operation of the others; the engine takes part with zeros.
// If members alone change a process set, OnMessage tells the other ranks, too. They update their table of sets when
// they read the entry in the log, and the engine does not see it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "common/status.h"
#include "controller/admission.h"
#include "controller/log_reader.h"
#include "controller/messages.h"
#include "controller/name_table.h"
#include "controller/node_leader.h"
#include "controller/node_memory.h"
#include "transport/transport.h"

namespace farandole {

class Negotiation {
 public:
  using Event = NegotiationEvent;
  using Item = NegotiationEvent::Item;

  // Tests use smaller ones.
  struct Limits {
    uint64_t max_uses = kMaxUses;              // of an id, before its name is described anew
    uint64_t log_entries = NodeLog::kEntries;  // see NodeLog
    // Every member reduces a small operation of up to this size by itself. Larger ones are reduced in two phases.
    size_t one_phase_bytes = kMaxOnePhaseBytes;
  };
  // memory: NodeMemory::BytesFor the members of this rank's node.
  Negotiation(const Layout& layout, int rank, std::byte* memory, const Limits& limits);
  Negotiation(const Layout& layout, int rank, std::byte* memory) : Negotiation(layout, rank, memory, {}) {}
  Negotiation(const Negotiation&) = delete;

  // ---- operations begin
  // Call it before Submit or SubmitSmall: where one of them throws after that, nothing has begun, and AddInFlight does
  // not throw. Returns the index of the next ticket.
  size_t Reserve() { return in_flight_.Reserve(); }
  // Returns kInvalid when an operation of that name is in flight on this rank, when there is no such set, or when this
  // rank is not in it.
  Status Submit(const DescribedOperation& operation, Admission* admission);
  // Submits a known small operation whose result the caller may be able to take at once. Returns its name, whose set
  // lives until the result is taken; admission->set stays as it is. Returns null, and does nothing, for any other
  // operation. Either the caller takes the result at once, or AddInFlight follows, without a call in between that
  // changes anything.
  Name* SubmitSmall(const DescribedOperation& operation, Admission* admission);
  // Prefetches the lines of the next use of a small operation in one phase.
  void PrefetchNext(const Name& name) const { in_flight_.PrefetchNext(name); }
  // The operation is in flight from now on, and gets its ticket.
  void AddInFlight(Name* name, Admission* admission) { in_flight_.AddInFlight(name, admission); }
  // Notes that this rank cannot make a call, see RefusalOf: then it fails on all ranks that make it. Returns false, and
  // does nothing, if this rank is not in the set, or if an operation of that name is in flight here.
  bool Refuse(Description refusal);
  // Returns kInvalid when there is no such set, when its removal is under way, or when this rank is not in it.
  Status CanBegin(int set) const;
  // Returns kInvalid when the set has operations in flight here, so its removal cannot be submitted.
  Status CanRemove(int set) const { return names_.CanRemove(set); }
  ProcessSetPtr FindSet(int id) const { return names_.FindSet(id); }

  enum class Arrived { kCounted, kLast, kEvicted };
  // REQUIRES: admission.id >= 0 and the operation is not small.
  Arrived Arrive(const Admission& admission);
  // Call it after kEvicted.
  void Redescribe(Ticket ticket);
  // Call it after kLast, unless the operation is early: the operation then runs in a batch. Returns false if it has to
  // wait for room in the log, until Advance finds some: this rank may be the slowest reader.
  bool PublishComplete(const Admission& admission);

  // ---- small operations
  // True when this rank can go on: all have written their data or, once it has reduced its share, all have reduced
  // theirs. A rank that finds this true after its own step wakes the others.
  bool CanAdvance(const Admission& admission) const {
    return in_flight_.CanAdvance(admission.id, *admission.slots, admission.two_phase, admission.generation());
  }
  // False if the operation has ended, or is described anew: then its data in the buffer must not be touched.
  bool IsSmall(Ticket ticket) const { return in_flight_.IsSmall(ticket); }
  // Ends a small operation. REQUIRES: IsSmall and CanAdvance; the result is taken before any other call.
  void EndSmall(Ticket ticket);
  // True if the driver has to release ids of ended operations. Any thread.
  bool HasFinished() const { return log_.HasFinished(); }
  std::vector<Ticket> ReadySmall() const { return in_flight_.Ready(); }
  // The last rank of each small operation then wakes this one. Returns ranks that the caller must wake: their shares
  // are missing although all data are written.
  std::vector<int> RequestDoorbells() { return in_flight_.RequestDoorbells(); }
  bool has_small() const { return in_flight_.has_small(); }

  // ---- early operations
  // Whether an operation that this rank has not begun may need these data; kIdEvicted says when none does any more.
  bool WantsMessage(const MessageTag& tag) const;
  // Ends an early operation. REQUIRES: all ranks have arrived with the admission's generation, and their data are
  // reduced.
  void EndEarly(Ticket ticket);

  // Call it once for each ticket that has ended: its index may then belong to another operation.
  void Release(Ticket ticket) { in_flight_.Release(ticket); }

  // ---- what others say
  // Cheap; may stay true for long.
  bool HasNews() const;
  // Returns whether anything was done. REQUIRES: the events of the last call are handled, since buffers may be given to
  // others now.
  bool Advance(NegotiationEvents* events);
  // Handles a message from the coordinator. An error means that the epoch cannot go on.
  Status OnMessage(const Bytes& message, NegotiationEvents* events);
  Outbox& outbox() { return outbox_; }

  // ---- joining and leaving
  // This rank then takes part in everything with zeros, until all ranks have joined. REQUIRES: nothing in flight.
  void SendJoin(const SequenceNumbers& sequence_numbers) { join_.Begin(sequence_numbers); }
  // Tell that this rank leaves: the other members of its node, and the other nodes. LogLeaving returns false while the
  // log is full. REQUIRES: nothing in flight.
  bool LogLeaving();
  void SendLeaving();
  // Returns the ranks that have said that they leave, in entries and messages that this rank cannot handle yet. These
  // may wait for a message, for a batch's end or for room in the log longer than the leaving takes.
  std::set<int> Leaving() const;

  // ---- who waits for whom
  // Asks these ranks where they are or, where there are none, rank 0 for whom it waits.
  void SendQuestion(const std::vector<int>& ranks);
  void SendAnswer(int asker, const std::string& text);
  // Asks whether others wait for this unnamed operation under another id. Harmless when they do not.
  void ReportStuck(Ticket ticket);
  // Returns the members of this node that are missing in the operation, or whose share of its result is.
  std::vector<int> MissingRanks(Ticket ticket) const;
  // Returns known operations that members of this node have arrived at, and this rank has not.
  std::vector<Absence> NeededFor() const;

 private:
  // Whether a message is handled, impossible, or refers to log entries that this rank has still to read: the one that
  // adds its process set, or the one that ends the name's use in flight.
  enum class Reading { kDone, kImpossible, kMustWait };

  // The operation is the next use of the name's id.
  bool Knows(const Name& name, const DescribedOperation& operation) const {
    return name.id >= 0 && name.use + 1 < limits_.max_uses && operation.Matches(name.description.signature);
  }
  Status Describe(const DescribedOperation& operation, Name* name, Admission* admission);
  Reading Read(const Bytes& message, NegotiationEvents* events);
  bool Dispatch(const Bytes& message, NegotiationEvents* events);
  Reading OnAssign(const Assignment& assignment, NegotiationEvents* events);
  bool IsOutsideOf(const Description& description) const;
  Name* BeginInvited(SetNames* names, const Description& description, NegotiationEvents* events);
  Name* AddOutside(const Assignment& assignment);
  std::map<int, uint64_t> OthersAt(const Name& name) const;
  bool OnError(const Error& error, NegotiationEvents* events);
  bool OnJoinEnd(Join result);
  bool OnLeave(int rank);
  bool OnQuestion(const Question& question, NegotiationEvents* events) const;
  bool OnAnswer(Answer answer, NegotiationEvents* events) const;
  bool OnAbort(const Abort& abort, NegotiationEvents* events) const;
  bool ReadWaiting(NegotiationEvents* events);

  // Members are values, since every pointer costs a small operation time. Later members refer to earlier ones.
  const Limits limits_;
  const NodeMembers node_;
  NodeMemory memory_;
  Outbox outbox_;
  NameTable names_;
  UsesInFlight in_flight_;
  JoinState join_;
  LogQueue log_queue_;
  NodeLeader leader_;
  LogReader log_;
  std::deque<Bytes> waiting_;        // the first of these messages is early
  uint32_t last_serial_ = 0;         // of the assignments that this rank has heard of
  bool coordinator_leaves_ = false;  // rank 0 has told this rank so in a message
};

}  // namespace farandole
