// The collectives of one process set: takes one piece of work after the other, decides how it goes, and polls it.
//
//   one group               through staging
//   all ranks apart         over links, on the tensors themselves
//   several groups          through staging inside, over links between
//
// Resumable; the driver alone uses it.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cross.h"
#include "backends/native/apart.h"
#include "backends/native/staged.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

class Collectives {
 public:
  // `old_set_id`: the set that this rank was in on the same channel before, or -1.
  Collectives(World* world, const Settings& settings, const ProcessSet& set, int old_set_id);

  Status Start(const Work* work);
  Status Poll(bool* moved, bool* done);
  std::vector<int> Laggards() const;
  void Abort();
  void Leave() const { staging_.Leave(); }  // the set is gone
  const ProcessSet& set() const { return set_; }

 private:
  int group_count() const { return set_.layout.group_count(); }
  bool one_group() const { return group_count() == 1; }
  bool all_apart() const { return set_.layout.lane_count() == 1 && group_count() > 1; }

  Status LaunchWhenFree();
  void LaunchStaged();
  void LaunchAlltoall();

  const ProcessSet set_;
  Staging staging_;
  CrossExchange cross_;
  int old_set_id_;
  bool entered_ = false;
  uint64_t next_round_;

  // Of the work at hand.
  const Work* work_ = nullptr;
  bool launched_ = false;
  std::unique_ptr<StagedOperation> staged_;
  std::unique_ptr<ApartOperation> apart_;

  Room room_;
};

}  // namespace farandole
