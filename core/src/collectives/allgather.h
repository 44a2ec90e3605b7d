// Allgather through staging.
//
//              one group                           several groups, some with several members
//   put        my chunk -> my slot                 my piece -> my slot, at its place in the round (partition.h)
//   combine    the others' slots -> output         the slots of my group -> output; the shards of my group's region
//                                                  that I own -> my result; then these go to their owners in the
//                                                  other groups, whose shards come into my result
//   finish     wait until all have read my slot    the other groups' regions: the owners' results -> output
//
// The bytes of every group cross once per shard.
#pragma once

#include "collectives/stages.h"
#include "collectives/task.h"

namespace farandole {

class StagedAllgather final : public StagedOperation {
 public:
  StagedAllgather(const Staging* staging, uint64_t first_round, const Task* task);

 protected:
  void Put(uint64_t t) override;
  Status Combine(uint64_t t, bool* ready, bool* moved) override;
  bool Finish(uint64_t t) override;

 private:
  size_t ChunkOf(int member, uint64_t t) const;  // bytes of the member's part in round t

  const Task* task_;
  std::vector<size_t> offsets_;
};

class GroupedAllgather final : public PartedOperation {
 public:
  using PartedOperation::PartedOperation;

 protected:
  void Put(uint64_t t) override;
  void Make(uint64_t t) override;
  bool Finish(uint64_t t) override;

 private:
  bool IsInMyGroup(const Parts::Piece& piece) const;
  std::byte* SlotOf(const Parts::Piece& piece, uint64_t t) const;  // of a member of my group
  void TakeOwnGroup(uint64_t t);
  void StartCrossing(uint64_t t);
  Range ShardOf(Range region, int shard) const;
};

}  // namespace farandole
