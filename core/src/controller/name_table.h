// The names that this rank knows, the ids they have, and which of their uses are in flight.
//
// Thread rule: the lock of Operations, except where a comment says otherwise.
//
// Invariants, whenever the lock is free:
// 1. A name with an id is the name that the table has at this id, and its description has the signature that was
//    assigned.
// 2. A use in flight is counted (it has arrived at the counter or written its data), or its description has been sent.
//    A counted use has an id; a described one has none until ASSIGN is read.
// 3. Submit, the copy into the buffer and Arrive are one step under the lock. Otherwise the id could change its meaning
//    under the arrival.
// 4. A name is erased only when nothing is in flight, it has no id, and no id of the table points to it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/status.h"
#include "controller/admission.h"
#include "controller/messages.h"
#include "controller/node_memory.h"
#include "world/process_set.h"

namespace farandole {

struct SetNames;

// What an assignment says of an id, and what follows from it. Equal on all members of the node.
struct IdProperties {
  BufferRange buffers;
  Protocol protocol{};
  size_t payload_bytes = 0;  // of a small or early one
  size_t counts_per_rank = 0;
  uint32_t serial = 0;    // of the assignment
  int local_members = 0;  // members of this node in the set
  bool collects = false;  // early, and this node has several members in the set
  bool once = false;      // the name forgets the id after its described use

  bool small() const { return protocol == Protocol::kSlots; }
  bool early() const { return protocol == Protocol::kEarly; }
};
// Null for an impossible assignment. REQUIRES: the description fits the set.
std::optional<IdProperties> PropertiesOf(const Assignment& assignment, const ProcessSet& set, const NodeMembers& node);

// Everything known about one name in one process set.
struct Name {
  Name(SetNames* of, std::string_view key) : of(of), key(key) {}
  inline const ProcessSet& set() const;
  bool small() const { return properties.small(); }
  bool AwaitsId() const { return in_flight && !counted && id < 0; }   // it is described
  uint32_t serial() const { return id < 0 ? 0 : properties.serial; }  // of the assignment; 0: it has none

  SetNames* const of;
  const std::string key;    // under which `of` finds it, also before it is described
  Description description;  // as last submitted
  FlightLabel label;        // of that description

  // The id and what was assigned with it. -1: the name has no id, and must be described.
  int id = -1;
  IdProperties properties;
  uint64_t use = 0;  // the last use of the id that began here; 0 is the described one
  // Ids of the table that point to this name: the current one, and former ones until EVICTED is read.
  int ids_held = 0;
  bool evicting = false;  // the id is forgotten after the use in flight
  // The members of another set change it. Nothing is in flight here; the log says when this rank's table changes.
  bool outside = false;

  // The use in flight; UsesInFlight changes these.
  Ticket ticket = 0;
  bool in_flight = false;
  bool counted = false;  // it has arrived at the counter, or written its data, as `use`
  size_t small_at = 0;   // its place among the small ones
};

// The names of one process set.
struct SetNames {
  explicit SetNames(ProcessSetPtr set) : set(std::move(set)) {}
  // Nothing may begin in a set while the ranks agree on its removal.
  bool IsOpen() const { return !removed && removals == 0; }
  Name* Find(std::string_view name) const {  // null when it is not known
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second.get();
  }

  const ProcessSetPtr set;
  int removals = 0;      // that this rank has called and rank 0 has not refused
  bool removed = false;  // as the log says
  std::unordered_map<std::string_view, std::unique_ptr<Name>> names;  // by their own keys
};

const ProcessSet& Name::set() const { return *of->set; }

// Owns names, ids and process sets. Ids are taken back in the order of the log, so a name means the same on all ranks
// that have read equally far.
class NameTable {
 public:
  explicit NameTable(const NodeMembers& node);

  // ---- process sets
  ProcessSetPtr FindSet(int id) const { return sets_.Find(id); }
  bool IsFutureSet(int id) const { return sets_.IsFuture(id); }  // the log adds it, in an entry not yet read
  SetNames* Names(int set) const {                               // null for an unknown or removed set
    if (set == 0) return everybody_;
    const auto found = by_set_.find(set);
    return found == by_set_.end() ? nullptr : found->second.get();
  }
  SetNames* outside() { return &outside_; }  // of changes of sets by their members, this rank not among them
  Status CanRemove(int set) const;           // kInvalid: it has operations in flight here
  void Close(const Signature& removal);      // this rank submits the removal
  void Reopen(const Signature& removal);     // rank 0 has refused the removal
  // Adds or removes the set, as the log says. *new_set: the id of an added one. Returns false for an impossible change.
  bool ChangeSets(const Signature& change, int* new_set);

  // ---- names
  Name* Find(int set, std::string_view name) const;
  Name* FindOrAdd(SetNames* names, std::string_view name);
  // Returns the name of the unnamed operation with this number that awaits an id, or null.
  static Name* FindAwaiting(const SetNames& names, int64_t sequence_number);
  // Erases a name that nothing uses, so that names used once do not fill the memory.
  void EraseIfIdle(Name* name);

  // ---- ids
  // What an id means. Ids that this rank has not heard of mean nothing.
  struct Id {
    Name* name = nullptr;     // null where this rank is not in the set, or has forgotten the id
    IdProperties properties;  // as assigned last
    ProcessSetPtr set;        // on a leader: null unless it leads the id
  };
  const Id& operator[](int id) const { return ids_[static_cast<size_t>(id)]; }
  // Gives the name its id. name: null where this rank only leads its node. REQUIRES: the id has no name.
  void Assign(Name* name, int id, const IdProperties& properties, const ProcessSetPtr& set);
  Name* at(int id) const { return (*this)[id].name; }
  // Likewise, but null for an id that the name had before.
  Name* Current(int id) const {
    Name* const name = at(id);
    return name != nullptr && name->id == id ? name : nullptr;
  }
  // Takes the id from its name. The name stays.
  void Forget(int id);
  // The leader leads the id no longer.
  void Release(int id) { ids_[static_cast<size_t>(id)].set.reset(); }

 private:
  const int rank_;
  ProcessSets sets_;
  std::map<int, std::unique_ptr<SetNames>> by_set_;
  SetNames* everybody_;  // the names of set 0
  SetNames outside_;
  std::array<Id, kMaxIds> ids_;
};

// Owns what is in flight on this rank.
class UsesInFlight {
 public:
  // one_phase_bytes: see Negotiation::Limits.
  UsesInFlight(const ArrivalCounters& counters, const BufferPool& buffers, size_t one_phase_bytes)
      : counters_(counters), buffers_(buffers), one_phase_bytes_(one_phase_bytes) {}

  // Begin, Arrive and AddInFlight do not throw after this. Returns the index of the next ticket.
  size_t Reserve() {
    const size_t index = tickets_.Reserve();
    if (small_.capacity() <= small_.size()) small_.reserve(2 * small_.size() + 1);
    return index;
  }
  Ticket Begin(Name* name) {
    name->ticket = tickets_.Add(name);
    name->in_flight = true;
    name->counted = false;
    return name->ticket;
  }
  // Makes the use in flight the next one of its name's id. Fills in what the submitter must know of it. Inline, since a
  // small operation takes no longer than a few calls.
  void Arrive(Name* name, Admission* admission) {
    if (name->small()) {
      ArriveSmall(name, admission);
      AddSmall(name);
      return;
    }
    const uint64_t use = ArriveAtNext(name, admission);
    if (!name->properties.early()) return;
    admission->early = true;
    if (name->properties.collects) {
      const auto members = name->set().layout.nodes[static_cast<size_t>(name->set().node())].size();
      admission->node_slots =
          SlotBuffer::WithResult(buffers_.BufferOf(name->properties.buffers, use), static_cast<int>(members),
                                 name->properties.payload_bytes, name->set().member());
    }
    admission->serial = name->properties.serial;
  }
  // Likewise for a small operation that is not in flight yet, and never will be if it is over before AddInFlight.
  void ArriveSmall(Name* name, Admission* admission) {
    const uint64_t use = ArriveAtNext(name, admission);
    // Built in place, without a copy.
    admission->slots.emplace(buffers_.BufferOf(name->properties.buffers, use), name->set().size(),
                             name->properties.payload_bytes, name->set().position);
    admission->two_phase = IsTwoPhase(*name);
  }
  void AddInFlight(Name* name, Admission* admission) {
    name->in_flight = true;
    admission->ticket = name->ticket = tickets_.Add(name);
    AddSmall(name);
  }
  // Takes the use in flight from the id; the operation is described anew.
  void CancelArrival(Name* name);
  void End(Name* name);
  void EndWith(NegotiationEvent::Kind kind, Name* name, NegotiationEvents* events);
  Name* Find(Ticket ticket) const { return tickets_.Find(ticket); }  // null: it has ended
  void Release(Ticket ticket) { tickets_.Release(ticket); }          // see Negotiation::Release

  // ---- small operations
  bool has_small() const { return small_count_.load(std::memory_order_relaxed) > 0; }  // any thread
  SlotBuffer SlotsOf(const Name& name, uint64_t use) const {                           // of a small one
    return {buffers_.BufferOf(name.properties.buffers, use), name.set().size(), name.properties.payload_bytes,
            name.set().position};
  }
  // Returns the last generation of a member of this node for the name; for a small one, in the buffer of that use.
  uint64_t LatestGenerationOf(int member, int rank, const Name& name, uint64_t use) const {
    if (!name.small()) return counters_.LatestOf(member, name.id);
    return SlotsOf(name, use).LatestOf(name.set().PositionOf(rank));
  }
  // See Negotiation::CanAdvance, for the data of a small operation. False while the id is evicted and this rank has not
  // reduced its share. Any thread. REQUIRES: a full fence (RingFence) since this rank wrote its data.
  bool CanAdvance(int id, const SlotBuffer& slots, bool two_phase, uint64_t generation) const;
  bool HasReduced(const Name& name, int position) const;  // its share of one in two phases
  bool IsTwoPhase(const Name& name) const {
    return name.properties.payload_bytes > one_phase_bytes_ && SlotBuffer::CanShare(name.properties.payload_bytes);
  }
  std::vector<Ticket> Ready() const;
  // Returns the ranks whose shares of this rank's operations are missing although all data are written.
  std::vector<int> RequestDoorbells() const;
  // Prefetches the lines to which this rank writes next.
  void PrefetchNext(const Name& name) const { SlotsOf(name, name.use + 1).PrefetchSlot(name.set().position); }
  bool IsSmall(Ticket ticket) const {  // false if it has ended, or is described anew
    const Name* const name = Find(ticket);
    return name != nullptr && name->counted && name->small();
  }

 private:
  uint64_t ArriveAtNext(Name* name, Admission* admission) {
    name->counted = true;
    admission->id = name->id;
    return admission->use = ++name->use;
  }
  uint64_t GenerationOfUse(const Name& name) const { return GenerationOf(name.use, name.description.sequence_number); }
  void AddSmall(Name* name) {
    name->small_at = small_.size();
    small_.push_back(name);
    small_count_.store(small_.size(), std::memory_order_relaxed);
  }
  void Leave(Name* name);
  void RemoveSmall(Name* name);

  const ArrivalCounters counters_;
  const BufferPool buffers_;
  const size_t one_phase_bytes_;
  Tickets<Name> tickets_;
  std::vector<Name*> small_;  // written by this rank
  std::atomic<size_t> small_count_{0};
};

}  // namespace farandole
