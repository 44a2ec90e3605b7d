// Staging is the memory through which the members of a process set that share a segment pass tensor data to each other,
// with the counters that say how far each member is. Every set has its own staging on its channel (process_set.h).
// Members are counted within the set.
//
// A task is cut into rounds, numbered consecutively across operations. A round uses slot (round mod 3) of every
// member's staging:
//
//   member   [ user | published | combined ]  [ slot 0 | slot 1 | slot 2 ]  [ result 0 | result 1 | result 2 ]
//
//   put(t)       writes my slot t, then published = t + 1
//   combine(t)   reads the others' slots t once they are published, may write my result t, then combined = t + 1
//   finish(t)    reads the others' results t once they are combined
//
// Every operation takes its rounds in the order put(t+1), combine(t), finish(t-1), so three slots are enough without
// any further signal, and an operation of another kind or size may follow at once: - A slot is overwritten by put(t+3).
// A member that lets others read its slots waits in finish(t) until all have combined t. - A result is written by
// combine(t+3), only after all have published t+3, and a member publishes t+3 after it
//   finished t. Fixed slots matter: rounds of any size and kind use the same places, so no two operations overlap
//   differently.
// - Where there are two members, combine(t) may write its results into the other's slot t (allreduce.cc). The other
//   alone reads them there, in finish(t), before its own put(t+3). With three members, one may be late to read from
//   the slot of another, which would not know.
//
// When another set takes over a channel, a member of the old set that is not in the new one may still read here. So
// `user` says which set a member is at. Before a member writes for a new set, it waits until no member is at its old
// set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/partition.h"
#include "collectives/shard_exchange.h"
#include "common/status.h"
#include "world/shm_group.h"

namespace farandole {

inline constexpr size_t kSlotBytes =
    512 << 10;  // 1/2 of a common L2 cache, which so holds a slot and what it is combined with

inline uint64_t SlotsFor(uint64_t size_bytes) { return (size_bytes + kSlotBytes - 1) / kSlotBytes; }

class Staging {
 public:
  static size_t BytesPerMember();
  // segment_members[m] is the place of member m in the segment; `member` is this rank's m.
  Staging(const ShmGroup* group, int channel, int set_id, std::vector<int> segment_members, int member);

  int member() const { return member_; }
  int count() const { return static_cast<int>(segment_members_.size()); }

  // True when no member of the segment is at the set `old_set_id` on this channel any more.
  bool HasBeenLeft(int old_set_id) const;
  void Enter() const;  // before the first round
  void Leave() const;  // after the last round of the last operation

  std::byte* slot(int member, uint64_t round) const;
  std::byte* result(int member, uint64_t round) const;

  // Tell the others that this member has published or combined all rounds before `end`.
  void Publish(uint64_t end) const;
  void Combined(uint64_t end) const;

  bool HasPublished(int member, uint64_t end) const;
  bool HasCombined(int member, uint64_t end) const;
  bool AllPublished(uint64_t end) const;
  bool AllCombined(uint64_t end) const;
  std::vector<int> WaitingOn() const;  // members that have published or combined less than this one

 private:
  struct Counters;
  Counters* counters(int member) const { return segment_counters(segment_members_[static_cast<size_t>(member)]); }
  Counters* segment_counters(int segment_member) const;
  void RingOthers() const;

  const ShmGroup* group_;
  int channel_;
  uint64_t user_;  // the value of `user` for this set
  std::vector<int> segment_members_;
  int member_;
};

// ---- operations
//
// One operation through staging: the loop over the rounds. Each collective supplies the three stages.
//
//   t       put 0 | put 1, combine 0 | put 2, combine 1, finish 0 | ... | combine n-1, finish n-2 | finish n-1
//
// Putting the next round before waiting for this one keeps both directions of the memory bus busy. Resumable: Advance
// goes on where it had to wait. The driver alone uses it.
//
//   StagedOperation      put, combine, finish
//   CrossingOperation    its combine makes something in shared memory, which is then exchanged between groups
//   PartedOperation      a CrossingOperation on parts of any sizes (algorithms/partition.h)
//
// While the exchange of one round is under way, Make prepares what the next round exchanges:
//
//   links      | exchange t        | exchange t+1      |
//   memory       make t+1 | ...      make t+2 | ...
//
// To make t+1 early takes no more memory: its result was free when all had published t+1 (above).

class StagedOperation {
 public:
  virtual ~StagedOperation() = default;

  // Sets *moved when it passes a stage. Stops at the first stage that has to wait.
  Status Advance(bool* moved);
  bool done() const { return finished_ == rounds_; }
  uint64_t rounds() const { return rounds_; }

 protected:
  // first_round: the group's running number. REQUIRES: the same rounds on all members.
  StagedOperation(const Staging* staging, uint64_t first_round, uint64_t rounds)
      : staging_(staging), first_(first_round), rounds_(rounds) {}

  // The stages of round t of this operation. Combine leaves *ready false, and Finish returns false, when they must be
  // called again later. A Combine that gets on without becoming ready sets *moved.
  virtual void Put(uint64_t t) = 0;
  virtual Status Combine(uint64_t t, bool* ready, bool* moved) = 0;
  virtual bool Finish(uint64_t t) = 0;

  // For operations whose members learn in combine(0) how many rounds there are. REQUIRES: one round so far.
  void ExtendTo(uint64_t rounds) { rounds_ = rounds; }

  uint64_t number(uint64_t t) const { return first_ + t; }  // of round t among all rounds of the group
  const Staging* staging_;

 private:
  uint64_t first_;
  uint64_t rounds_;
  uint64_t put_ = 0, combined_ = 0, finished_ = 0;
};

class CrossingOperation : public StagedOperation {
 protected:
  CrossingOperation(const Staging* staging, uint64_t first_round, uint64_t rounds, ShardExchange* exchange)
      : StagedOperation(staging, first_round, rounds), exchange_(exchange) {}

  // Writes result t and hands it to the exchange. REQUIRES: all have published t.
  virtual void Make(uint64_t t) = 0;
  // Called when the exchange of round t is done.
  virtual void Exchanged(uint64_t /*t*/) {}

  Status Combine(uint64_t t, bool* ready, bool* moved) final;

  ShardExchange* exchange_;

 private:
  void MakeNext(bool* moved);

  uint64_t made_ = 0;            // rounds
  uint64_t jobs_added_[2] = {};  // to the exchange, up to and including a round; by round mod 2
};

class PartedOperation : public CrossingOperation {
 public:
  PartedOperation(const Staging* staging, uint64_t first_round, const Task* task, const Parts& parts,
                  ShardExchange* exchange)
      : CrossingOperation(staging, first_round, parts.rounds(), exchange),
        task_(task),
        parts_(parts),
        shard_count_(exchange->partition().ShardCount(parts.total_bytes())) {}

 protected:
  const Task* const task_;
  const Parts parts_;
  const int shard_count_;
};

// An operation through staging starts from these. REQUIRES: all outlive the operation.
struct StagedStart {
  const Staging* staging;
  uint64_t first_round;  // the group's running number
  const Task* task;
  ShardExchange* exchange;
};

// One function for each word in the last column of types.def: MakeStagedAllreduce is in allreduce.cc. It hands the
// exchange the data for other groups, and returns null where this rank has nothing to do in staging.
#define FRD_OP_KIND(enumerator, number, name, traits, moved) \
  std::unique_ptr<StagedOperation> MakeStaged##moved(const StagedStart& start);
#include "common/types.def"

std::unique_ptr<StagedOperation> MakeStaged(const StagedStart& start);  // the one of its kind

}  // namespace farandole
