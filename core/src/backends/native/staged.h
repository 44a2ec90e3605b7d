// One operation on its way through staging: the loop over the rounds, which every collective fills in its own way.
//
//   t       put 0 | put 1, combine 0 | put 2, combine 1, finish 0 | ... | combine n-1, finish n-2 | finish n-1
//
// Putting the next round before waiting for this one keeps both directions of the memory bus busy. Resumable: Advance
// goes on where it had to wait. The driver alone uses it.
#pragma once

#include <cstdint>

#include "backends/native/staging.h"
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

}  // namespace farandole
