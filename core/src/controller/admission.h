// Values that the engine and the negotiation exchange: a submitted operation, what its submitter has to do next, and
// the events that follow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "controller/messages.h"
#include "transport/shm/slots.h"
#include "world/process_set.h"

namespace farandole {

// A ticket identifies an operation in flight and is never 0. Its low 32 bits are an index into a table. Its high 32
// bits count how often the index was used, so an old ticket finds nothing.
using Ticket = uint64_t;

inline size_t IndexOf(Ticket ticket) { return static_cast<uint32_t>(ticket); }

// Maps tickets to values; it finds, adds and removes in constant time. The index of a ticket that has ended is not used
// again before it is released. Thread rule: one thread at a time.
template <typename T>
class Tickets {
 public:
  // Returns the index of the next value, for which there is room from here on: Add does not throw then.
  size_t Reserve() {
    if (free_.empty()) {
      if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 1);  // so that Release never throws
      slots_.emplace_back();
      free_.push_back(slots_.size() - 1);
    }
    return free_.back();
  }
  Ticket Add(T* value) {
    const size_t index = Reserve();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.value = value;
    return static_cast<Ticket>(++slot.uses) << 32 | index;
  }
  // Returns the value, or null once the ticket has ended.
  T* Find(Ticket ticket) const {
    const size_t index = IndexOf(ticket);
    const bool known = index < slots_.size() && slots_[index].uses == static_cast<uint32_t>(ticket >> 32);
    return known ? slots_[index].value : nullptr;
  }
  void End(Ticket ticket) { slots_[IndexOf(ticket)].value = nullptr; }
  void Release(Ticket ticket) { free_.push_back(IndexOf(ticket)); }  // REQUIRES: it has ended, and was not released

 private:
  struct Slot {
    T* value = nullptr;
    uint32_t uses = 0;
  };
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
};

// A submitted operation as the name table sees it. Most operations are known, and then need no description: making one
// costs more than all the rest of a small operation.
class DescribedOperation {
 public:
  virtual ~DescribedOperation() = default;
  virtual int set() const = 0;
  virtual std::string_view name() const = 0;
  virtual int64_t sequence_number() const = 0;  // -1 when the user has named it
  virtual std::string_view site() const = 0;
  virtual bool Matches(const Signature& signature) const = 0;
  virtual std::vector<int64_t> Counts() const = 0;
  virtual Description Describe() const = 0;
};

// How the flight recorder of the engine knows a name, and the place of its calls (operation/flight_recorder.h); the
// controller only keeps it. 0: not recorded yet.
struct FlightLabel {
  uint32_t name = 0, site = 0;
  uint32_t count = 0;  // operations of the name so far
};

// The work of the submitter for an operation that begins.
struct Admission {
  Ticket ticket = 0;
  ProcessSetPtr set;
  int id = -1;  // -1: it was described; nothing more to do until an event names the ticket
  uint64_t use = 0;
  int64_t sequence_number = -1;          // of an unnamed operation; equal on all ranks that meet in one use
  std::optional<SlotBuffer> slots;       // small: where all members write their data, with generation()
  bool two_phase = false;                // small: every rank reduces a share of the data
  bool early = false;                    // early: leaders exchange their nodes' data from now on, with `serial`
  std::optional<SlotBuffer> node_slots;  // early: where the members of this node meet, if it has several
  uint32_t serial = 0;
  FlightLabel* label = nullptr;  // its name's; valid until the lock is released
  uint64_t generation() const { return GenerationOf(use, sequence_number); }
};

// The work of the engine for submitted operations.
struct NegotiationEvent {
  struct Item {
    Ticket ticket = 0;
    std::vector<int64_t> counts;  // of all positions, see Signature::CountsPerRank
    int new_set = -1;             // add_process_set: its id
  };
  enum Kind {
    kBatch,        // run `items`, in this order; equal on all ranks of their sets
    kTake,         // items[0] is small, and all data are there: take its result or, in two phases, reduce the share
    kCancelled,    // items[0] is early and incomplete; it is described anew
    kIdEvicted,    // no rank begins another use of the early id with this `serial`
    kFailed,       // items[0]: `status`
    kNamesDiffer,  // the ranks have different names for the unnamed `description`: not all of their callers wait
    kInvited,      // this rank has joined, and takes part in `description` as items[0]
    kJoinEnd,      // all ranks had joined, `rank` last; `sequence_numbers` are the highest of any rank
    kAsked,        // rank `rank` asks where this rank is
    kAnswered,     // what rank `answer.rank` says of itself, or which ranks rank 0 knows to be missing
    kLeft,         // `rank` left in good order; it arrives at nothing more
    kAbort,        // `status`: this epoch is over; `rank` is to blame (or -1)
  } kind = kBatch;
  std::vector<Item> items;
  Status status;
  int rank = -1;
  Description description;
  SequenceNumbers sequence_numbers;
  Answer answer;
  uint32_t serial = 0;
  ProcessSetPtr set;  // of `description`, which may be removed before the event is handled

  static NegotiationEvent About(Kind kind, Ticket ticket) {
    NegotiationEvent event;
    event.kind = kind;
    event.items.push_back({ticket, {}, -1});
    return event;
  }
  static NegotiationEvent OfRank(Kind kind, int rank, Status status = Status()) {
    NegotiationEvent event;
    event.kind = kind;
    event.rank = rank;
    event.status = std::move(status);
    return event;
  }
};
using NegotiationEvents = std::vector<NegotiationEvent>;

// Outbox collects what this rank has to send: messages to the coordinator, and a wake-up for sleeping members of its
// node. Thread rule: the lock of Operations.
class Outbox {
 public:
  void Send(Bytes message) {
    messages_.push_back(std::move(message));
    empty_ = false;
  }
  void Send(MessageKind kind, int id) { Send(EncodeIdMessage(kind, id)); }
  bool empty() const { return empty_; }  // any thread
  size_t size() const { return messages_.size(); }
  // The caller delivers them.
  std::vector<Bytes> Take() {
    empty_ = true;
    return std::exchange(messages_, {});
  }

  // Notes that the node's memory holds news for sleeping members.
  void Ring() { ring_ = true; }
  bool TakeRing() { return std::exchange(ring_, false); }

 private:
  std::vector<Bytes> messages_;
  std::atomic<bool> empty_{true};
  bool ring_ = false;
};

}  // namespace farandole
