// A staged operation whose combine has two halves: something is made in shared memory, then exchanged between groups.
// While the exchange of one round is under way, what the next one exchanges is made:
//
//   links      | exchange t        | exchange t+1      |
//   memory       make t+1 | ...      make t+2 | ...
//
// Making t+1 early needs no more room: its result was free when all had published t+1 (staging.h).
#pragma once

#include "backends/cross.h"
#include "backends/native/staged.h"

namespace farandole {

class CrossedOperation : public StagedOperation {
 protected:
  CrossedOperation(const Staging* staging, uint64_t first_round, uint64_t rounds, CrossExchange* cross)
      : StagedOperation(staging, first_round, rounds), cross_(cross) {}

  // Writes result t and hands it to the exchange. All have published t.
  virtual void Make(uint64_t t) = 0;
  // The exchange of round t is done.
  virtual void Exchanged(uint64_t /*t*/) {}

  Status Combine(uint64_t t, bool* ready, bool* moved) final;

  CrossExchange* cross_;

 private:
  void MakeNext(bool* moved);

  uint64_t made_ = 0;            // rounds
  uint64_t jobs_added_[2] = {};  // to the exchange, up to and with a round; by round mod 2
};

}  // namespace farandole
