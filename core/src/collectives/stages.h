// One operation on its way through staging: the loop over the rounds, which every collective fills in its own way.
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
// While the exchange of one round is under way, what the next round exchanges is made:
//
//   links      | exchange t        | exchange t+1      |
//   memory       make t+1 | ...      make t+2 | ...
//
// Making t+1 early needs no more memory: its result was free when all had published t+1 (staging.h).
#pragma once

#include <cstdint>
#include <memory>

#include "algorithms/partition.h"
#include "collectives/shard_exchange.h"
#include "collectives/staging.h"
#include "common/status.h"

namespace farandole {

class StagedOperation {
 public:
  virtual ~StagedOperation() = default;

  // *moved is set when a stage was passed. Stops at the first stage that has to wait.
  Status Advance(bool* moved);
  bool done() const { return finished_ == rounds_; }
  uint64_t rounds() const { return rounds_; }

 protected:
  // first_round: the group's running number. REQUIRES: the same rounds on all members.
  StagedOperation(const Staging* staging, uint64_t first_round, uint64_t rounds)
      : staging_(staging), first_(first_round), rounds_(rounds) {}

  // The stages of round t of this operation. Not ready, or false: not yet, come again. A Combine that gets on without
  // becoming ready sets *moved.
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

  // Writes result t and hands it to the exchange. All have published t.
  virtual void Make(uint64_t t) = 0;
  // The exchange of round t is done.
  virtual void Exchanged(uint64_t /*t*/) {}

  Status Combine(uint64_t t, bool* ready, bool* moved) final;

  ShardExchange* exchange_;

 private:
  void MakeNext(bool* moved);

  uint64_t made_ = 0;            // rounds
  uint64_t jobs_added_[2] = {};  // to the exchange, up to and with a round; by round mod 2
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

// What an operation through staging starts from. REQUIRES: all outlive the operation.
struct StagedStart {
  const Staging* staging;
  uint64_t first_round;  // the group's running number
  const Task* task;
  ShardExchange* exchange;
};

// One file for each collective.
std::unique_ptr<StagedOperation> MakeStagedAllreduce(const StagedStart& start);
std::unique_ptr<StagedOperation> MakeStagedBroadcast(const StagedStart& start);
std::unique_ptr<StagedOperation> MakeStagedAllgather(const StagedStart& start);
std::unique_ptr<StagedOperation> MakeStagedReducescatter(const StagedStart& start);
std::unique_ptr<StagedOperation> MakeStagedAlltoall(const StagedStart& start);  // between members of the group

}  // namespace farandole
