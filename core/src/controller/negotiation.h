// This rank's side of the negotiation: which operation has which id, what this rank has in flight, and what the group's
// log says next.
//
//   Submit ---- small ----> the span (cells.h), where every member sees by itself when all have come
//          |--- eager ----> Arrive, and the data to all others ---> Inbox: OnPut, until all have come
//          |--- known ----> Arrive (counter) - last of the group -> the log, or the coordinator (a set across groups)
//          \--- unknown --> DESCRIBE ------> coordinator ---------> ASSIGN, READY -> the log
//   Advance reads the log: batches to run, ids that retire, ranks that leave.
//
// Negotiation dispatches. Its members own the state, one each:
//
//   NameTable      names, ids, process sets            UsesInFlight     uses in flight, small operations
//   Inboxes        PUTs for ids still unknown          JoinState    rounds of joining, invitations
//   LogReader      how far the log is read, batches    GroupLeader  what the first member does for its group
//   MessageReader  messages that have to wait          Outbox       what is to be sent
//
// State machines over a group's memory and messages, without threads or sockets; simulated as they are.
//
// Thread rule: one call at a time, under the lock of Operations, but for what needs no lock: CompleteTogether, IsReady,
// AnyJoined and has_small from any thread, HasNews from the holder of the ProgressLock. Lock order: ProgressLock, then
// the lock of Operations. Submit, the copy into the span and Arrive are one step under the lock: nothing else may come
// between, or the id could change its meaning under the arrival.
//
// After a rank has joined, and rank 0 has heard of it, Advance and OnMessage invite it to every operation of the
// others; the engine then takes part with zeros.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/status.h"
#include "controller/admission.h"
#include "controller/group_leader.h"
#include "controller/group_memory.h"
#include "controller/inbox.h"
#include "controller/join.h"
#include "controller/log_reader.h"
#include "controller/messages.h"
#include "controller/name_table.h"

namespace farandole {

// Owns the messages of the coordinator that speak of what this rank has still to read in the log, and all behind them.
// It hands the others to those whose state they change. Thread rule: the holder of the ProgressLock, under the Table's
// mutex; HasWaiting without that.
class MessageReader {
 public:
  MessageReader(const GroupMembers& group, NameTable* names, UsesInFlight* in_flight, Inboxes* inboxes, JoinState* join,
                GroupLeader* leader)
      : group_(group), names_(*names), in_flight_(*in_flight), inboxes_(*inboxes), join_(*join), leader_(*leader) {}

  bool HasWaiting() const { return !waiting_.empty(); }
  // An error means that the epoch cannot go on.
  Status Read(const Bytes& message, NegotiationEvents* events);
  // Messages that waited, now that the log is read as far as it can be understood without more of them. True when there
  // was one.
  bool ReadWaiting(NegotiationEvents* events);
  // Ranks that have left, say messages.
  void AddLeaving(std::set<int>* leaving) const;

 private:
  Status Handle(const Bytes& message, NegotiationEvents* events, bool log_is_read, bool* early);
  Status OnAssign(ByteReader* reader);
  Status OnInvite(ByteReader* reader, NegotiationEvents* events, bool log_is_read, bool* early);
  Status OnError(ByteReader* reader, NegotiationEvents* events);
  Status OnJoinResult(ByteReader* reader);
  Status OnIdMessage(MessageKind kind, ByteReader* reader, NegotiationEvents* events);
  bool Assign(Name* name, const Assignment& assignment);
  void TakeIfAllHavePut(Name* name, NegotiationEvents* events);

  const GroupMembers& group_;
  NameTable& names_;
  UsesInFlight& in_flight_;
  Inboxes& inboxes_;
  JoinState& join_;
  GroupLeader& leader_;
  std::deque<Bytes> waiting_;
  bool coordinator_leaves_ = false;  // rank 0 has told this rank so, though not through the log
};

class Negotiation {
 public:
  using Event = NegotiationEvent;
  using Item = NegotiationEvent::Item;

  // Smaller ones are for tests.
  struct Limits {
    uint64_t most_uses = kMostUses;             // of an id, before its name asks for a new one
    uint64_t log_entries = GroupLog::kEntries;  // see GroupLog
    size_t locked_bytes = 4096;                 // of a small operation, that are copied and folded under the lock
  };
  // memory: GroupMemory::BytesFor the members of this rank's group.
  Negotiation(const Layout& layout, int rank, std::byte* memory, const Limits& limits);
  Negotiation(const Layout& layout, int rank, std::byte* memory) : Negotiation(layout, rank, memory, {}) {}
  Negotiation(const Negotiation&) = delete;

  // ---- operations begin
  // kInvalid when an operation of that name is in flight on this rank, or there is no such set, or it is without us.
  Status Submit(const DescribedOperation& operation, Admission* admission);
  // Likewise, if it is known and small; the set is returned and not put into the admission, and lives until the result
  // is taken. Else null, and nothing is done.
  const ProcessSetPtr* SubmitSmall(const NamedOperation& operation, Admission* admission);
  // kInvalid when the set has operations in flight here, so its removal cannot be submitted.
  Status CanRemove(int set) const { return names_.CanRemove(set); }
  ProcessSetPtr FindSet(int id) const { return names_.FindSet(id); }

  enum class Arrived { kCounted, kLast, kRetired };
  // REQUIRES: admission.id >= 0 and the operation is not small.
  Arrived Arrive(const Admission& admission);
  // After kRetired. False when this rank has joined: it is out of the operation until it is invited again.
  bool Redescribe(Ticket ticket);
  // After kLast, unless it is eager: to be run in a batch. False when the log is full.
  bool CompleteTogether(const Admission& admission);
  // After that: Advance tries again. It also reads the log, of which this rank may itself be the slowest reader.
  void CompleteLater(const Admission& admission);

  // ---- small operations
  // All have put their data. (After the data was put: who finds it true wakes the others.)
  bool IsReady(const Admission& admission) const { return in_flight_.IsReady(admission); }
  // The result is about to be taken from the span. False when that has been done, or the operation is described anew.
  // REQUIRES: IsReady, and nothing else is called until the result is taken, unless it is large.
  bool TakeReady(Ticket ticket) { return in_flight_.Take(ticket); }
  // Of a large one: this thread has put its data (after Submit), or has taken the result (after TakeReady). In between
  // nobody else takes the result, and Advance reads nothing that could give the span to others. True when somebody has
  // waited for such a thread meanwhile. No-op where nothing is to be released.
  bool Release(Ticket ticket) { return in_flight_.Release(ticket); }
  // Some thread is between these two. The caller waits for it: Release will say so.
  bool AwaitsRelease() { return in_flight_.AwaitsRelease(); }
  std::vector<Ticket> ReadySmall() const { return in_flight_.Ready(); }
  void AskForBells() { in_flight_.AskForBells(); }  // of those that come last to what is in flight
  bool has_small() const { return in_flight_.has_small(); }

  // ---- eager operations
  // Rank `from` has come, and put.payload_bytes of data follow, for *inbox; null when nobody waits for them any more.
  // An error means that the epoch cannot go on.
  Status OnPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox) {
    return inboxes_.OnPut(from, put, inbox);
  }
  // All have come with the admission's stamp, and their data are folded. From here on that buffer of the inbox may
  // be cleared.
  void EndEager(Ticket ticket);

  // ---- what others say
  // Cheap; may be true for long.
  bool HasNews() const;
  // True when anything was done. REQUIRES: what the last call said is handled, since spans may be given to others now.
  bool Advance(NegotiationEvents* events);
  // A message from the coordinator. An error means that the epoch cannot go on.
  Status OnMessage(const Bytes& message, NegotiationEvents* events) { return messages_.Read(message, events); }
  Outbox& outbox() { return outbox_; }

  // ---- joining and leaving
  // Once rank 0 has heard it, this rank takes part in everything with zeros, until all ranks have joined. REQUIRES:
  // nothing in flight.
  void Join(const SequenceNumbers& sequence_numbers) { join_.Join(sequence_numbers); }
  bool AnyJoined() const { return memory_.counters.AnyJoined(); }
  // Says that this rank leaves. REQUIRES: nothing in flight.
  void Leave();
  // Ranks that have said so, where it stands behind what this rank cannot read yet. That may wait for a message, for
  // where a batch ends or for room in the log, longer than their leaving takes.
  std::set<int> Leaving() const;

  // ---- who waits for whom
  // Asks whether others wait for this unnamed operation under another id. Harmless when they do not.
  void ReportStuck(Ticket ticket);
  // Members of this group that have not come to the operation; empty when that is not known here.
  std::vector<int> MissingRanks(Ticket ticket) const;
  // Known operations that members of this group have come to, and this rank has not.
  std::vector<Absence> NeededFor() const;

 private:
  void Admit(Name* name, const NamedOperation& operation, Admission* admission);
  Status Describe(const DescribedOperation& operation, Name* name, Admission* admission);

  // By value, since every pointer costs a small operation. Later members refer to earlier ones.
  const Limits limits_;
  const GroupMembers group_;
  GroupMemory memory_;
  Outbox outbox_;
  NameTable names_;
  UsesInFlight in_flight_;
  Inboxes inboxes_;
  JoinState join_;
  GroupLeader leader_;
  LogReader log_;
  MessageReader messages_;
  LogQueue unlogged_;  // this rank came last to these, and the log was full
};

}  // namespace farandole
