// Broadcast through staging. Every group receives each byte once, spread over its shards.
//
//   put      root: chunk -> its slot
//   combine  root's group: slot of the root -> output; owners also send their shards to the other groups' owners
//            other groups: owners receive their shards into their result
//   finish   root: all have read its slot      other groups: the owners' results -> output
#pragma once

#include <algorithm>

#include "collectives/iovector.h"
#include "collectives/shard_exchange.h"
#include "collectives/stages.h"

namespace farandole {

class StagedBroadcast final : public StagedOperation {
 public:
  StagedBroadcast(const Staging* staging, uint64_t first_round, const Task* task, ShardExchange* exchange);

 protected:
  void Put(uint64_t t) override;
  Status Combine(uint64_t t, bool* ready, bool* moved) override;
  bool Finish(uint64_t t) override;

 private:
  bool IsRoot() const { return in_root_group_ && staging_->member() == root_member_; }
  size_t offset(uint64_t t) const { return t * kSlotBytes; }
  size_t size(uint64_t t) const { return std::min(kSlotBytes, vector_.size_bytes() - offset(t)); }
  bool MayCombine(uint64_t t) const;

  IoVector vector_;
  ShardExchange* exchange_;
  int root_group_;
  int root_member_;
  bool in_root_group_;
  int shard_count_;
  bool crossing_ = false;
};

}  // namespace farandole
