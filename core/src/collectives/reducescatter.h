// Reduce-scatter through staging: every member folds its own part in its group, or, among several groups, the shards of
// all groups' parts that it owns, which are then folded across the groups by those who own them where they belong.
//
//                one group                                 several groups
//   put          the others' pieces -> my slot (partition.h)   all pieces -> my slot
//   combine      my piece of all members -> output         my shards of all regions -> my result; then across groups
//   finish       wait until all have read my slot          my piece <- the results of its owners
//
// The folds and their order are those of allreduce, so are the bits.
#pragma once

#include "collectives/stages.h"

namespace farandole {

class StagedReducescatter final : public PartedOperation {
 public:
  using PartedOperation::PartedOperation;

 protected:
  void Put(uint64_t t) override;
  void Make(uint64_t t) override;
  bool Finish(uint64_t t) override;

 private:
  bool one_group() const { return exchange_->partition().group_count() == 1; }
  size_t element_bytes() const { return SizeOf(task_->dtype); }
  Parts::Piece MyPiece(uint64_t t) const;
  Range ShardsIn(Range region, int member) const;  // what the member owns of a region
  void FoldOwnPart(uint64_t t);
  void FoldOwnShards(uint64_t t);
  void StartCrossing(uint64_t t);
};

}  // namespace farandole
