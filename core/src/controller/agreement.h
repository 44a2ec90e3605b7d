// This rank's half of the agreement: which operation has which id, what this rank has in flight, and what the group's
// log says next.
//
//   Submit ---- known ----> Arrive (board) -- last of the group --> the log, or the coordinator when there are several groups
//          \--- unknown --> DESCRIBE ------> coordinator ---------> ASSIGN, READY -> the log
//   Advance reads the log: batches to run, results to take, ids that retire, ranks that leave.
//
// A state machine over a board and messages, without threads or sockets; simulated as it is. One call at a time, with
// two exceptions: Submit, the copy into the span and Arrive are one step (nothing else may come between, or the id
// could change its meaning under the arrival), and the Complete functions may run at any time, since a completed use
// keeps its id alive.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/board.h"
#include "controller/messages.h"
#include "world/layout.h"

namespace farandole {

using Ticket = uint64_t;  // the caller's name for one submitted operation

class Agreement {
 public:
  Agreement(const Layout& layout, int rank, std::byte* board_memory);

  // What Submit tells the caller to do.
  struct Plan {
    Ticket ticket = 0;
    int id = -1;  // -1: it was described; nothing more to do until an event names the ticket
    uint64_t use = 0;
    uint64_t turn = 0;
    std::byte* span = nullptr;  // half of the id's span for this turn; null when it has none
  };
  // kInvalid when an operation of that name is in flight on this rank.
  Status Submit(const Description& description, Ticket ticket, Plan* plan);

  enum class Arrived { kCounted, kLast, kRetired };
  // After the data of a small operation, if any, is in the span. REQUIRES: plan.id >= 0.
  Arrived Arrive(const Plan& plan) { return Translate(board_.Arrive(plan.id, plan.use)); }
  void Redescribe(Ticket ticket);           // after kRetired
  void CompleteAlone(const Plan& plan);     // after kLast, with the result in the span
  void CompleteTogether(const Plan& plan);  // after kLast, to be run in a batch

  struct Item {
    Ticket ticket = 0;
    std::vector<int64_t> extents;  // allgather: the first dimensions of all ranks, rank by rank
  };
  struct Event {
    enum Kind {
      kBatch,   // run `items`, in this order; equal on all ranks
      kTake,    // items[0]: the result lies in `span`
      kFailed,  // items[0]: `status`
      kLeft,    // `rank` left in good order; what is still in flight will never complete
      kAbort,   // `status`: this epoch is over; `rank` is to blame (or -1)
    } kind = kBatch;
    std::vector<Item> items;
    std::byte* span = nullptr;
    Status status;
    int rank = -1;
  };
  // Cheap; may be true for long.
  bool HasNews() const { return !finished_.empty() || board_.Read(head_).has_value() || LeaderHasNews(); }
  // True when anything was done. REQUIRES: what the last call said is handled, since spans may be given to others now.
  bool Advance(std::vector<Event>* events);

  // A message from the coordinator. An error means that the epoch cannot go on.
  Status OnMessage(const Bytes& message, std::vector<Event>* events);

  // Says that this rank leaves. REQUIRES: nothing in flight.
  void Leave();
  // Asks whether others wait for this unnamed operation under another id. Harmless when they do not.
  void ReportStuck(Ticket ticket);
  // Members of this group that have not come to the operation; empty when that is not known here.
  std::vector<int> MissingRanks(Ticket ticket) const;

  // For the coordinator; the caller delivers them.
  std::vector<Bytes> TakeOutgoing() { return std::move(outgoing_); }
  bool HasOutgoing() const { return !outgoing_.empty(); }
  // True once after something was written that a sleeping member should see.
  bool TakeRing() { return std::exchange(ring_, false); }

 private:
  // Everything known about one name.
  struct Name {
    Description description;  // as last submitted
    Signature known;          // as assigned
    int id = -1;
    int64_t span_offset = -1;
    int64_t span_bytes = 0;
    uint64_t next_turn = 0;  // turn 0 is the described one
    Ticket ticket = 0;
    bool in_flight = false;
    bool counted = false;  // the one in flight has arrived at the cell as `use`
    uint64_t use = 0;
    int ids_held = 0;       // entries of by_id_ that point here: the current id, and former ones until RETIRED is read
    bool retiring = false;  // RETIRED was read, but one completed use is still to come
  };

  static Arrived Translate(const Board::Arrival& arrival);
  void Describe(Name* name);
  std::byte* SpanOf(const Name& name, uint64_t turn) const;
  void WriteExtents(std::byte* span, size_t first, const std::vector<int64_t>& extents) const;
  std::vector<int64_t> ReadExtents(const Name& name) const;

  bool Consume(const LogEntry& entry, std::vector<Event>* events);
  bool EnsureSealed();
  void Complete(Name* name, const LogEntry& entry, std::vector<Event>* events);
  Event Take(const Name& name, Item item) const;
  void OnRetired(Name* name, const LogEntry& entry);
  void Forget(int id);
  bool ReleaseFinished();

  Status OnAbort(ByteReader* reader, std::vector<Event>* events) const;
  Status OnAssign(ByteReader* reader);
  Status OnError(ByteReader* reader, std::vector<Event>* events);
  Status OnReady(ByteReader* reader);
  Status OnIdMessage(MessageKind kind, ByteReader* reader);

  void EraseIfIdle(Name* name);

  bool LeaderHasNews() const;
  bool CanReportRetired(int id, uint64_t uses) const;
  bool AdvanceAsLeader();
  std::vector<int64_t> GroupExtents(const Name& name, uint64_t turn) const;
  bool leader() const { return board_.member() == 0; }

  Layout layout_;
  int rank_;
  Board board_;
  bool one_group_;

  std::unordered_map<std::string, std::unique_ptr<Name>> names_;
  std::array<Name*, kMaxIds> by_id_{};
  std::unordered_map<Ticket, Name*> in_flight_;
  std::vector<Bytes> outgoing_;
  bool ring_ = false;

  uint64_t head_ = 0;        // next log entry to read
  uint64_t sealed_end_ = 0;  // READY entries before this belong to the current batch
  uint64_t batch_ = 0;
  Event building_;
  std::vector<int> finished_;  // forgotten, but the span may be needed until the events of the last Advance are handled

  // Leaders only.
  uint64_t completed_head_ = 0;
  uint64_t seals_written_ = 0;
  std::array<uint64_t, kMaxIds> completes_sent_{};
  std::map<int, uint64_t> retiring_;  // id -> uses completed here, RETIRE_INFO not yet sent
  std::vector<int> freeing_;          // RETIRED is in the log, members may still be reading
};

}  // namespace farandole
