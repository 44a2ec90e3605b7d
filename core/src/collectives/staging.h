// Staging is the memory through which the members of a process set that share a segment pass tensor data to each other,
// with the counters that say how far each member is. Every set has its own staging on its channel (process_set.h).
// Members are counted within the set.
//
// A task is cut into rounds, numbered consecutively across operations. A round uses slot (round mod d) of every
// member's staging, where d, the depth, is 3 for a set in one node and kInterNodeDepth for one of several nodes:
//
//   member   [ user | published | combined ]  [ slot 0 | slot 1 | slot 2 | ... ]  [ result 0 | result 1 | ... ]
//
//   write(t)     writes my slot t, then published = t + 1
//   make(t)      reads the others' slots t once they are published, and may write my result t. Once that is exchanged,
//                combined = t + 1
//   finish(t)    reads the others' results t once they are combined
//
// Each member takes these in the order of rounds, and write(t+d) after finish(t). So d slots are enough without any
// further signal, and an operation of another kind or size may follow at once:
// - A slot is overwritten by write(t+d). A member that lets others read its slots waits in finish(t) until all have
//   combined t.
// - A result is written by make(t+d), only after all have published t+d, and a member publishes t+d after it
//   finished t.
// - make(t) may write into another member's slot t where no third member reads: what the slot's owner alone reads
//   there, in finish(t), before its own write(t+d) (allreduce.cc), or what nobody reads any more (AcquireLines). A
//   third member may be late to read, and the owner would not know.
// - Slot addresses do not depend on the operation, so these rules hold across operations of any size and kind.
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
#include "collectives/task.h"
#include "common/status.h"
#include "world/shm_node.h"

namespace farandole {

// Half of a common second-level cache, so that a slot and the data it is reduced with fit.
inline constexpr size_t kSlotBytes = 512 << 10;

// The depth for several nodes: the rounds that may be under way at once. The last phase of a round comes after the
// first one of eight later rounds (kRoundsUnderWay); the others are made, copied in and copied out meanwhile. In one
// node more than three would only take cache.
inline constexpr uint64_t kInterNodeDepth = 16;

inline uint64_t SlotsFor(uint64_t size_bytes) { return (size_bytes + kSlotBytes - 1) / kSlotBytes; }

class Staging {
 public:
  static size_t BytesPerMember();
  // segment_members[m] is the place of member m in the segment; `member` is this rank's m. `depth` is equal on all.
  Staging(const ShmNode* node, int channel, int set_id, std::vector<int> segment_members, int member,
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

  const ShmNode* node_;
  int channel_;
  uint64_t user_;  // the value of `user` for this set
  std::vector<int> segment_members_;
  int member_;
  uint64_t depth_;
};

// ---- operations
//
// One operation through staging: the loop over the rounds. Each collective supplies the stages.
//
//   t       write 0 | write 1, make 0 | write 2, make 1, finish 0 | ... | make n-1, finish n-2 | finish n-1
//
// Writing the next round before waiting for this one keeps both directions of the memory bus busy. Resumable: Advance
// goes on where it had to wait. The driver alone uses it.
//
// In one node a round is combined once it is made. Among several nodes it is exchanged in between, and as many rounds
// are under way as there are slots:
//
//   links      | exchange t, t+1, t+2, ...
//   memory     | write t+4, make t+3, finish t-1 | write t+5, make t+4, finish t | ...
//
// The links come first after each step in memory, since they are slower. To make a round early takes no more memory:
// its result was free when all had published it (above).

// An operation starts from these. REQUIRES: all outlive the operation.
struct OperationStart {
  const Task* task;
  bool is_flat;  // no two ranks of the set share memory, and there are several
  const Staging* staging;
  uint64_t first_round;  // the node's running number
  ShardExchange* exchange;
  Scratch* scratch;
  std::byte** result;  // flat: set to where the result of one vector is made, to be copied to its outputs
};

class StagedOperation {
 public:
  virtual ~StagedOperation() = default;

  // Sets *moved when it passes a stage. Stops when each stage has to wait.
  Status Advance(bool* moved);
  bool done() const { return finished_ == rounds_; }
  uint64_t rounds() const { return rounds_; }

 protected:
  // is_exchanged: among several nodes each round is exchanged. REQUIRES: the same rounds on all members.
  StagedOperation(const OperationStart& start, uint64_t rounds, bool is_exchanged = true);

  // The stages of round t of this operation. Finish returns false when it must be called again later.
  virtual void Write(uint64_t t) = 0;
  // Returns whether Make may be called.
  virtual bool MayMake(uint64_t t) const { return staging_->AllPublished(number(t) + 1); }
  // Writes result t and, where rounds are exchanged, hands it to the exchange.
  virtual void Make(uint64_t t) = 0;
  // Called when the exchange of round t is done; where there is none, after Make.
  virtual void Exchanged(uint64_t /*t*/) {}
  virtual bool Finish(uint64_t t) = 0;

  // For operations whose members learn in round 0 how many rounds there are. REQUIRES: one round so far.
  void ExtendTo(uint64_t rounds) { rounds_ = rounds; }

  uint64_t number(uint64_t t) const { return first_ + t; }  // of round t among all rounds of the node
  const Partition& partition() const { return exchange_->partition(); }
  bool one_node() const { return partition().node_count() == 1; }

  const Staging* const staging_;
  const Task* const task_;
  ShardExchange* const exchange_;

 private:
  bool WriteNext();
  bool MakeNext();
  bool TakeExchanged();
  bool FinishNext();

  const uint64_t first_;
  uint64_t rounds_;
  const bool is_exchanged_;
  uint64_t written_ = 0, made_ = 0, combined_ = 0, finished_ = 0;  // rounds
};

// One function for each word of types.def for what moves data: StartAllreduce is in allreduce.cc. It hands the exchange
// what needs no staging, and leaves *staged null where this rank has nothing to do in staging.
#define FRD_OP_KIND(enumerator, number, name, traits, moved, ...) \
  Status Start##moved(const OperationStart& start, std::unique_ptr<StagedOperation>* staged);
#include "common/types.def"

// The one of its kind.
Status StartOperation(const OperationStart& start, std::unique_ptr<StagedOperation>* staged);

// For flat operations: sets *place to memory for a result of so many bytes, the output where that is one piece.
Status FindPlace(const OperationStart& start, size_t size_bytes, std::byte** place);
// For flat operations: whether 16-bit floats are scaled before they are exchanged (reduce.h); and scales them into
// `place`.
bool ScalesFirst(const Task& task);
void ScaleInto(const Task& task, const void* source, size_t size_bytes, std::byte* place);

}  // namespace farandole
