// This rank's side of the negotiation: which operation has which id, what this rank has in flight, and what the group's
// log says next.
//
//   Submit ---- small ----> the span (cells.h), where every member sees by itself when all have come
//          |--- eager ----> Arrive, and the data to all others ---> Inbox: OnPut, until all have come
//          |--- known ----> Arrive (board) -- last of the group --> the log, or the coordinator (a set across groups)
//          \--- unknown --> DESCRIBE ------> coordinator ---------> ASSIGN, READY -> the log
//   Advance reads the log: batches to run, ids that retire, ranks that leave.
//
// A state machine over a board and messages, without threads or sockets; simulated as it is. One call at a time, but
// for what needs no lock: CompleteTogether, IsReady, AnyJoined and has_small from any thread, HasNews from the one that
// advances. Submit, the copy into the span and Arrive are one step (nothing else may come between, or the id could
// change its meaning under the arrival).
//
// After a rank has joined, and rank 0 has heard of it, Advance and OnMessage invite it to every operation of the
// others; the engine then takes part with zeros.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/group_memory.h"
#include "controller/inbox.h"
#include "controller/messages.h"
#include "controller/tickets.h"
#include "transport/shm/cells.h"
#include "world/process_set.h"

namespace farandole {

// An operation that wants to begin. What it says in full is asked only when rank 0 has to hear of it: most operations
// are known, and making a description costs more than all the rest of a small one.
class Proposal {
 public:
  virtual ~Proposal() = default;
  virtual int set() const = 0;
  virtual const std::string& name() const = 0;
  virtual int64_t turn() const = 0;  // -1 when the user has named it
  virtual std::string_view site() const = 0;
  virtual std::vector<int64_t> Extents() const = 0;
  virtual bool Means(const Signature& signature) const = 0;
  virtual Description Describe() const = 0;
};

class Negotiation {
 public:
  // Smaller ones are for tests.
  struct Limits {
    uint64_t most_uses = kMostUses;        // of an id, before its name asks for a new one
    uint64_t log_entries = GroupLog::kEntries;  // see GroupLog
    size_t locked_bytes = 4096;            // of a small operation, that are copied and folded under the lock
  };
  Negotiation(const Layout& layout, int rank, std::byte* memory, const Limits& limits);
  Negotiation(const Layout& layout, int rank, std::byte* memory) : Negotiation(layout, rank, memory, {}) {}
  ~Negotiation();

  // What Submit tells the caller to do.
  struct Plan {
    Ticket ticket = 0;
    ProcessSetPtr set;
    int id = -1;  // -1: it was described; nothing more to do until an event names the ticket
    uint64_t use = 0;
    int64_t turn = -1;                // of an unnamed operation; all that meet in one use must have the same
    std::optional<CellBuffer> cells;  // small: where all members put their data, with sequence()
    bool large = false;               // of a small one: too large to be copied and folded under the lock, see Release
    // Eager: where those of the others come. Having arrived, this rank sends them its own, with `serial` and `round`.
    std::shared_ptr<Inbox> inbox;
    uint32_t serial = 0;
    uint32_t round = 0;
    uint64_t sequence() const { return SequenceOf(use, turn); }
  };
  // kInvalid when an operation of that name is in flight on this rank, or there is no such set, or it is without us.
  Status Submit(const Proposal& proposal, Plan* plan);
  // Likewise, if it is known and small; the set is returned and not put into the plan, and lives until the result is
  // taken. Else null, and nothing is done.
  const ProcessSetPtr* SubmitSmall(const Proposal& proposal, Plan* plan);

  // kInvalid when the set has operations in flight here, so its removal cannot be submitted.
  Status CanRemove(int id) const;

  enum class Arrived { kCounted, kLast, kRetired };
  // REQUIRES: plan.id >= 0 and the operation is not small.
  Arrived Arrive(const Plan& plan);
  // After kRetired. False when this rank has joined: it is out of the operation until it is invited again.
  bool Redescribe(Ticket ticket);
  // After kLast, unless it is eager: to be run in a batch. False when the log is full.
  bool CompleteTogether(const Plan& plan);
  // After that: Advance tries again. It also reads the log, of which this rank may itself be the slowest reader.
  void CompleteLater(const Plan& plan);

  // Small operations. All have put their data. (After the data was put: who finds it true wakes the others.)
  bool IsReady(const Plan& plan) const;
  // The result is about to be taken from the span. False when that has been done, or the operation is described anew.
  // REQUIRES: IsReady, and nothing else is called until the result is taken, unless the plan is large.
  bool TakeReady(Ticket ticket);
  // Where the plan is large: this thread has put its data (after Submit), or has taken the result (after TakeReady).
  // In between nobody else takes the result, and Advance reads nothing that could give the span to others. True when
  // somebody has waited for such a thread meanwhile. No-op where nothing is to be released.
  bool Release(Ticket ticket);
  // Some thread is between these two. The caller waits for it: Release will say so.
  bool AwaitsRelease() { return MustWaitFor(reserved_count_ > 0); }
  std::vector<Ticket> ReadySmall() const;
  void AskForBells();  // of those that come last to what is in flight
  bool has_small() const { return small_count_.load(std::memory_order_relaxed) > 0; }
  bool AnyJoined() const { return memory_.counters.AnyJoined(); }

  // Eager operations. Rank `from` has come, and put.payload_bytes of data follow, for *inbox; null when nobody waits
  // for them any more. An error means that the epoch cannot go on.
  Status OnPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox);
  // All have come with the plan's sequence, and their data are folded. From here on that buffer of the inbox may be
  // cleared.
  void EndEager(Ticket ticket);

  struct Item {
    Ticket ticket = 0;
    std::vector<int64_t> extents;  // of all positions, see Signature::ExtentCount
    int new_set = -1;              // add_process_set: its id
  };
  struct Event {
    enum Kind {
      kBatch,      // run `items`, in this order; equal on all ranks of their sets
      kTake,       // items[0] is small and ready; take its result now
      kRecalled,   // items[0] is eager and not all came; it is described anew, what was put to it is dropped
      kFailed,     // items[0]: `status`
      kWithdrawn,  // items[0]: this rank has joined, and is out of the operation until it is invited again
      kInvited,   // this rank has joined and takes part in `description`; items[0].ticket != 0: it is submitted already
      kJoinEnd,   // all had joined, `rank` last; `turns` are the most that anybody counted
      kAbsent,    // what rank 0 knows of who has not come: `absences`
      kAsked,     // rank `rank` wants to know where this one is
      kAnswered,  // where rank `rank` is: `where`
      kRefused,   // rank `rank` has not changed the process sets as this one is about to: `status`'s message
      kLeft,      // `rank` left in good order; what is still in flight will never complete
      kAbort,     // `status`: this epoch is over; `rank` is to blame (or -1)
    } kind = kBatch;
    std::vector<Item> items;
    Status status;
    int rank = -1;
    Description description;
    Turns turns;
    std::vector<Absence> absences;
    Whereabouts where;

    static Event About(Kind kind, Ticket ticket);
    static Event OfRank(Kind kind, int rank, Status status = Status());
  };
  // Cheap; may be true for long.
  bool HasNews() const;
  // True when anything was done. REQUIRES: what the last call said is handled, since spans may be given to others now.
  bool Advance(std::vector<Event>* events);

  // A message from the coordinator. An error means that the epoch cannot go on.
  Status OnMessage(const Bytes& message, std::vector<Event>* events);

  // Once rank 0 has heard it, this rank takes part in everything with zeros, until all ranks have joined. REQUIRES:
  // nothing in flight.
  void Join(const Turns& turns);
  bool joined() const { return joined_; }

  // Says that this rank leaves. REQUIRES: nothing in flight.
  void Leave();
  // Ranks that have said so, where it stands behind what this rank cannot read yet.
  std::set<int> Leaving() const;
  // Asks whether others wait for this unnamed operation under another id. Harmless when they do not.
  void ReportStuck(Ticket ticket);
  void AskWhom();                           // for whom this rank waits, as far as rank 0 knows
  void Ask(const std::vector<int>& ranks);  // where they are
  void Answer(int asker, const Whereabouts& where);
  // This rank has not begun a change of process sets in which the others may wait for it.
  void TellOfRefusal(int64_t turn, const std::string& text);
  // Members of this group that have not come to the operation; empty when that is not known here.
  std::vector<int> MissingRanks(Ticket ticket) const;
  // Known operations that members of this group have come to, and this rank has not.
  std::vector<Absence> NeededFor() const;

  ProcessSetPtr FindSet(int id) const { return sets_.Find(id); }

  // For the coordinator; the caller delivers them.
  std::vector<Bytes> TakeOutgoing() { return std::move(outgoing_); }
  bool HasOutgoing() const { return !outgoing_.empty(); }
  // True once after something was written that a sleeping member should see.
  bool TakeRing() { return std::exchange(ring_, false); }

 private:
  struct Name;
  struct Book;

  // negotiation.cc: submitting
  Status Refusal(const Proposal& proposal, const Book* book) const;
  void Describe(Name* name);
  void PlanKnown(Name* name, const Proposal& proposal, Plan* plan);
  Book* FindBook(int set) const;
  void CloseSet(int id);
  Ticket Begin(Name* name);
  void End(Name* name);
  void EndWith(Event::Kind kind, Name* name, std::vector<Event>* events);
  void EnterSmall(Name* name);
  void LeaveSmall(Name* name);
  void Reserve(Name* name);
  bool IsLarge(const Name& name) const;
  bool MustWaitFor(bool reserved);
  bool AllMean(const Plan& plan) const;
  CellBuffer CellsOf(const Name& name, uint64_t turn) const;
  std::vector<int64_t> ReadExtents(const Name& name) const;
  void EraseIfIdle(Name* name);

  // negotiation_log.cc
  void ReadLog(std::vector<Event>* events);
  bool Consume(const LogEntry& entry, std::vector<Event>* events);
  void ForgetIfRetiring(Name* name);
  bool ConsumeReady(const LogEntry& entry, Name* name, std::vector<Event>* events);
  bool EnsureSealed(bool inside);
  uint64_t RunEnd() const;
  void EmitBatch(bool inside, std::vector<Event>* events);
  bool Complete(Name* name, const LogEntry& entry, bool inside);
  bool ChangeSets(const Name& name, Item* item);
  void OnRetired(Name* name, const LogEntry& entry, std::vector<Event>* events);
  bool EndJoin(std::vector<Event>* events);
  void Forget(int id);
  bool ReleaseFinished();
  void Invite(std::vector<Event>* events);
  std::optional<uint64_t> WhatOthersSaid(const Name& name) const;

  // negotiation_eager.cc
  Status OnEarlyPut(int from, const EagerPut& put, std::shared_ptr<Inbox>* inbox);
  static Status Announce(int from, const EagerPut& put, const std::shared_ptr<Inbox>& to,
                         std::shared_ptr<Inbox>* inbox);
  std::vector<int> MissingPuts(const Name& name) const;
  std::optional<uint64_t> WhatOthersPut(const Name& name) const;

  // negotiation_messages.cc
  Status Handle(const Bytes& message, std::vector<Event>* events, bool log_is_read, bool* early);
  bool HandleDeferred(std::vector<Event>* events);
  Status OnAbort(ByteReader* reader, std::vector<Event>* events) const;
  Status OnAssign(ByteReader* reader);
  Status OnInvite(ByteReader* reader, std::vector<Event>* events, bool log_is_read, bool* early);
  void TakeIfAllHavePut(Name* name, std::vector<Event>* events);
  Status OnError(ByteReader* reader, std::vector<Event>* events);
  Status OnReady(ByteReader* reader);
  Status OnLead(ByteReader* reader, bool* early);
  Status OnJoinResult(ByteReader* reader);
  Status OnStacks(ByteReader* reader, std::vector<Event>* events) const;
  Status OnRefused(ByteReader* reader, std::vector<Event>* events) const;
  Status OnAbsent(ByteReader* reader, std::vector<Event>* events) const;
  Status OnIdMessage(MessageKind kind, ByteReader* reader, std::vector<Event>* events);
  void ReopenSet(const Signature& signature);
  bool Accept(Name* name, const Assignment& assignment);

  // negotiation_leader.cc
  void Append(const LogEntry& entry);
  void AppendSeal(uint64_t end);
  bool AppendUnlogged();
  bool AppendPending();
  struct Leading;
  uint64_t RetireInGroup(const Leading& leading);
  std::vector<uint64_t> SaidHere(const Leading& leading) const;
  bool LeaderHasNews() const;
  bool CanReportRetired(int id, uint64_t uses) const;
  bool AdvanceAsLeader();
  uint64_t SequenceHere(const Leading& leading) const;
  std::vector<int64_t> GroupExtents(const Leading& leading, uint64_t turn) const;

  const Limits limits_;
  GroupMembers group_;
  GroupMemory memory_;
  ProcessSets sets_;

  std::map<int, std::unique_ptr<Book>> books_;
  Book* everybody_ = nullptr;  // the book of set 0
  std::array<Name*, kMaxIds> by_id_{};
  std::array<int, kMaxIds> sharers_of_{};             // by id
  std::array<uint32_t, kMaxIds> serial_of_{};         // by id
  uint32_t last_serial_ = 0;                          // that this rank has heard of
  size_t eager_count_ = 0;                            // in flight
  std::map<uint32_t, std::shared_ptr<Inbox>> early_;  // by serial, of which we have still to hear
  Tickets<Name> in_flight_;
  std::vector<Name*> small_;  // in flight, put by this rank and not reserved
  std::atomic<size_t> small_count_{0};
  size_t reserved_count_ = 0;        // names of which a thread copies or folds the data without the lock
  bool waits_for_release_ = false;   // somebody does, for one of them
  bool coordinator_leaves_ = false;  // rank 0 has told this rank so, though not through the log
  std::deque<Bytes> deferred_;  // messages that speak of what we have still to read in the log, and all behind them
  std::vector<Bytes> outgoing_;
  bool ring_ = false;

  // Reading the log. Index 0: sets inside the group, whose batches end at a position of the log; 1: sets across groups,
  // whose batches end at a number of READY entries of their kind.
  uint64_t head_ = 0;
  uint64_t end_[2] = {0, 0};
  uint64_t batch_[2] = {0, 0};
  uint64_t across_read_ = 0;
  Event building_[2];
  std::deque<LogEntry> unlogged_;  // the log was full when this rank came last to these
  std::atomic<bool> has_unlogged_{false};
  std::vector<int> finished_;  // forgotten, but the span may be needed until the events of the last Advance are handled

  // Having joined.
  std::atomic<bool> joined_{false};
  // Rank 0 has heard of it. Before, our help could let another rank end its last operation and be heard first.
  bool takes_part_ = false;
  std::map<int, uint64_t> opened_;  // id -> what the others said of the use for which only joined ranks are missing
  uint32_t round_ = 0;              // how often all had joined
  std::set<int> refused_;           // ids of broadcasts whose root this rank is
  std::optional<Event> join_result_;

  // Leaders only.
  struct PendingEntry {
    LogEntry entry;
    std::optional<uint64_t> seal;  // instead of the entry
  };
  std::deque<PendingEntry> pending_log_;  // the log was full
  struct Leading {
    Lead lead;
    int sharers;  // members of this group in the set
    ProcessSetPtr set;
    IdSpan span() const { return {lead.span_offset, lead.span_bytes}; }
    CellBuffer CellsOf(const SpanMemory& spans, uint64_t use) const {
      return spans.CellsOf(span(), use, set->size(), static_cast<size_t>(lead.payload_bytes));
    }
  };
  std::map<int, Leading> leads_;
  uint64_t completed_head_ = 0;
  uint64_t seals_written_ = 0;
  uint64_t across_written_ = 0;
  std::array<uint64_t, kMaxIds> completes_sent_{};
  std::map<int, uint64_t> retiring_;  // id -> uses completed here, RETIRE_INFO not yet sent
  std::vector<int> freeing_;          // RETIRED is in the log, members may still be reading
};

// Everything known about one name in one process set.
struct Negotiation::Name {
  Book* book = nullptr;
  Description description;  // as last submitted
  Signature known;          // as assigned
  int id = -1;
  IdSpan span;
  bool small = false;
  size_t payload_bytes = 0;      // of a small one
  std::shared_ptr<Inbox> inbox;  // of an eager one
  bool has_extents = false;
  uint64_t next_turn = 0;  // turn 0 is the described one
  Ticket ticket = 0;
  bool in_flight = false;
  bool counted = false;  // the one in flight has arrived at the cell, or put its data, as `use`
  uint64_t use = 0;
  size_t small_at = 0;    // its place in small_
  bool reserved = false;  // a thread copies its data into the span, or folds them, without the lock
  bool taken = false;     // it is folding
  int ids_held = 0;       // entries of by_id_ that point here: the current id, and former ones until RETIRED is read
  bool retiring = false;  // RETIRED was read, but one completed use is still to come
};

// The names of one process set.
struct Negotiation::Book {
  ProcessSetPtr set;
  int removals = 0;      // that this rank has called and rank 0 has not refused
  bool removed = false;  // says the log
  bool IsOpen() const { return !removed && removals == 0; }
  std::unordered_map<std::string, std::unique_ptr<Name>> names;
};

}  // namespace farandole
