// The collectives of one process set: runs one task after the other by its plan (algorithms/plan.h), and polls it.
//
//   one node                      through staging
//   no two ranks share memory     over links, on the tensors themselves
//   several nodes                 through staging inside, over links between
//
// Resumable; the driver alone uses it.
#pragma once

#include <memory>

#include "collectives/links.h"
#include "collectives/shard_exchange.h"
#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

class Collectives {
 public:
  // `old_set_id`: this rank's former set on the same channel, or -1. REQUIRES: world and settings outlive this.
  Collectives(World* world, const Settings& settings, const ProcessSet& set, int old_set_id);

  // Before Start, or before the first of several steps of one task.
  void Begin(const Task& task);
  Status Start(const Task* task);
  Status Poll(bool* moved, bool* done);
  std::vector<int> WaitingOn() const;
  void Abort();
  void Leave() const { staging_.Leave(); }  // the set is removed
  const ProcessSet& set() const { return set_; }

 private:
  Status LaunchWhenFree();

  World* const world_;
  const Settings& settings_;
  const ProcessSet set_;
  Staging staging_;
  ShardExchange exchange_;
  int old_set_id_;
  bool entered_ = false;
  uint64_t next_round_;

  Plan plan_;  // of the current task, for all its steps

  // The current task, or step.
  const Task* task_ = nullptr;
  bool launched_ = false;
  std::unique_ptr<StagedOperation> staged_;
  std::unique_ptr<LinkOperation> apart_;

  Scratch scratch_;
};

}  // namespace farandole
