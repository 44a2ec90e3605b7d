// Staging is the memory through which the members of a process set that share a segment pass tensor data to each other,
// with the counters that say how far each member is. Every set has its own staging on its channel (process_set.h).
// Members are counted within the set.
//
// A task is cut into rounds, numbered consecutively across operations. A round uses slot (round mod d) of every
// member's staging, where d, the depth, is 3 for a set in one group and kCrossingDepth for one of several groups:
//
//   member   [ user | published | combined ]  [ slot 0 | slot 1 | slot 2 | ... ]  [ result 0 | result 1 | ... ]
//
//   put(t)       writes my slot t, then published = t + 1
//   combine(t)   reads the others' slots t once they are published, may write my result t, then combined = t + 1
//   finish(t)    reads the others' results t once they are combined
//
// Each member takes these in the order of rounds, and put(t+d) after finish(t). So d slots are enough without any
// further signal, and an operation of another kind or size may follow at once:
// - A slot is overwritten by put(t+d). A member that lets others read its slots waits in finish(t) until all have
//   combined t.
// - A result is written by combine(t+d), only after all have published t+d, and a member publishes t+d after it
//   finished t.
// - combine(t) may write into another member's slot t where no third member reads: what the slot's owner alone reads
//   there, in finish(t), before its own put(t+d) (allreduce.cc), or what nobody reads any more (TakeLines). A third
//   member may be late to read, and the owner would not know.
// - Fixed slots matter: rounds of any size and kind use the same places, so no two operations overlap differently.
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

// The depth for several groups: the rounds that may be under way at once. The last phase of a round comes after the
// first one of eight later rounds (kRoundsUnderWay); the others are made, copied in and copied out meanwhile. In one
// group more than three would only take cache.
inline constexpr uint64_t kCrossingDepth = 16;

inline uint64_t SlotsFor(uint64_t size_bytes) { return (size_bytes + kSlotBytes - 1) / kSlotBytes; }

class Staging {
 public:
  static size_t BytesPerMember();
  // segment_members[m] is the place of member m in the segment; `member` is this rank's m. `depth` is equal on all.
  Staging(const ShmGroup* group, int channel, int set_id, std::vector<int> segment_members, int member,
          uint64_t depth = 3);

  int member() const { return member_; }
  uint64_t depth() const { return depth_; }
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
  uint64_t depth_;
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
// Among several groups combine is two steps, make and exchange, and as many rounds are under way as there are slots:
//
//   links      | exchange t, t+1, t+2, ...
//   memory     | finish t-1, make t+3, put t+4 | finish t, make t+4, put t+5 | ...
//
// The links come first after each step in memory, since they are slower. To make a round early takes no more memory:
// its result was free when all had published it (above).

// An operation through staging starts from these. REQUIRES: all outlive the operation.
struct StagedStart {
  const Staging* staging;
  uint64_t first_round;  // the group's running number
  const Task* task;
  ShardExchange* exchange;
};

class StagedOperation {
 public:
  virtual ~StagedOperation() = default;

  // Sets *moved when it passes a stage. Stops when each stage has to wait.
  virtual Status Advance(bool* moved);
  bool done() const { return finished_ == rounds_; }
  uint64_t rounds() const { return rounds_; }

 protected:
  // REQUIRES: the same rounds on all members.
  StagedOperation(const StagedStart& start, uint64_t rounds)
      : staging_(start.staging),
        task_(start.task),
        exchange_(start.exchange),
        first_(start.first_round),
        rounds_(rounds) {}

  // The stages of round t of this operation. Combine leaves *ready false, and Finish returns false, when they must be
  // called again later. A Combine that gets on without becoming ready sets *moved.
  virtual void Put(uint64_t t) = 0;
  virtual Status Combine(uint64_t t, bool* ready, bool* moved) = 0;
  virtual bool Finish(uint64_t t) = 0;

  // For operations whose members learn in combine(0) how many rounds there are. REQUIRES: one round so far.
  void ExtendTo(uint64_t rounds) { rounds_ = rounds; }

  uint64_t number(uint64_t t) const { return first_ + t; }  // of round t among all rounds of the group

  void PutNext();
  void CombinedNext();  // tells it
  bool FinishNext();    // false: it has to wait

  const Staging* const staging_;
  const Task* const task_;
  ShardExchange* const exchange_;
  uint64_t put_ = 0, combined_ = 0, finished_ = 0;  // rounds

 private:
  uint64_t first_;
  uint64_t rounds_;
};

class CrossingOperation : public StagedOperation {
 protected:
  using StagedOperation::StagedOperation;

  // Returns whether Make may be called.
  virtual bool MayMake(uint64_t t) const { return staging_->AllPublished(number(t) + 1); }
  // Writes result t and, among several groups, hands it to the exchange. REQUIRES: MayMake.
  virtual void Make(uint64_t t) = 0;
  // Called when the exchange of round t is done, in one group after Make.
  virtual void Exchanged(uint64_t /*t*/) {}

  Status Combine(uint64_t t, bool* ready, bool* moved) final;

 private:
  Status Advance(bool* moved) final;
  bool TakeExchanged();
  bool MakeNext();

  uint64_t made_ = 0;  // rounds
};

class PartedOperation : public CrossingOperation {
 public:
  PartedOperation(const StagedStart& start, const Parts& parts)
      : CrossingOperation(start, parts.rounds()),
        parts_(parts),
        shard_count_(exchange_->partition().ShardCount(parts.total_bytes())) {}

 protected:
  const Parts parts_;
  const int shard_count_;
};

// One function for each word of types.def for what moves data: MakeStagedAllreduce is in allreduce.cc. It hands the
// exchange the data for other groups, and returns null where this rank has nothing to do in staging.
#define FRD_OP_KIND(enumerator, number, name, traits, moved, ...) \
  std::unique_ptr<StagedOperation> MakeStaged##moved(const StagedStart& start);
#include "common/types.def"

std::unique_ptr<StagedOperation> MakeStaged(const StagedStart& start);  // the one of its kind

}  // namespace farandole
