// The collectives of one process set: takes one task after the other, decides how it is performed, and polls it.
//
//   one group                     through staging
//   no two ranks share memory     over links, on the tensors themselves
//   several groups                through staging inside, over links between
//
// Resumable; the driver alone uses it.
#pragma once

#include <cstddef>
#include <memory>

#include "algorithms/choose_path.h"
#include "collectives/shard_exchange.h"
#include "collectives/staging.h"
#include "collectives/task.h"
#include "common/config.h"
#include "world/world.h"

namespace farandole {

// Collectives among ranks of which no two share memory: over links, straight from and to the tensors where these are
// one piece of memory; otherwise (fused tensors, ranks without memory) by way of scratch memory.
// Memory that is kept from one operation to the next.
class Scratch {
 public:
  // Null when there is no memory. What was in it is lost.
  std::byte* Get(size_t size_bytes);
  // Large rooms are given back.
  void Release();

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t size_bytes_ = 0;
};

class LinkOperation {
 public:
  // REQUIRES: every group of the set is one rank, there are two or more; all outlive this.
  LinkOperation(const Task* task, ShardExchange* exchange, Scratch* scratch)
      : task_(task), exchange_(exchange), scratch_(scratch), me_(static_cast<size_t>(task->set->position)) {}

  // Hands the work to the exchange.
  Status Start();
  // The exchange is done.
  void Finish();

 private:
  Status StartAllreduce();
  Status StartBroadcast();
  Status StartAllgather();
  Status StartReducescatter();
  bool ScalesFirst() const;
  // From here on the source is in `place`, and nothing is left to scale.
  void ScaleInto(std::byte* place, size_t size_bytes, const std::byte** source, Scale* scale) const;
  // The output where it is one piece of memory, else scratch memory.
  Status FindPlace(size_t size_bytes);

  const Task* task_;
  ShardExchange* exchange_;
  Scratch* scratch_;
  size_t me_;
  std::byte* place_ = nullptr;  // where the result of an allreduce or broadcast comes into being
};

class Collectives {
 public:
  // `old_set_id`: the set that this rank was in on the same channel before, or -1.
  Collectives(World* world, const Settings& settings, const ProcessSet& set, int old_set_id);

  Status Start(const Task* task);
  Status Poll(bool* moved, bool* done);
  std::vector<int> WaitingOn() const;
  void Abort();
  void Leave() const { staging_.Leave(); }  // the set is gone
  const ProcessSet& set() const { return set_; }

 private:
  Status LaunchWhenFree();
  void LaunchStaged();
  void LaunchAlltoall();

  const ProcessSet set_;
  Staging staging_;
  ShardExchange exchange_;
  int old_set_id_;
  bool entered_ = false;
  uint64_t next_round_;

  // Of the work at hand.
  const Task* task_ = nullptr;
  bool launched_ = false;
  std::unique_ptr<StagedOperation> staged_;
  std::unique_ptr<LinkOperation> apart_;

  Scratch scratch_;
};

}  // namespace farandole
