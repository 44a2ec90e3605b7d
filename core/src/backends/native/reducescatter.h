// Reduce-scatter through staging: every member folds its own part in its group, or, among several groups, the lanes of
// all groups' parts that it carries, which are then folded across the groups by those who carry them where they belong.
//
//                one group                                 several groups
//   put          the others' pieces -> my slot (parts.h)   all pieces -> my slot
//   combine      my piece of all members -> output         my lanes of all regions -> my result; then across groups
//   finish       wait until all have read my slot          my piece <- the results of its carriers
//
// The folds and their order are those of allreduce, so are the bits.
#pragma once

#include "backends/native/parted.h"

namespace farandole {

class StagedReducescatter final : public PartedOperation {
 public:
  using PartedOperation::PartedOperation;

 protected:
  void Put(uint64_t t) override;
  void Make(uint64_t t) override;
  bool Finish(uint64_t t) override;

 private:
  bool one_group() const { return cross_->topology().group_count() == 1; }
  size_t element_bytes() const { return SizeOf(work_->dtype); }
  Parts::Piece MyPiece(uint64_t t) const;
  Range LanesIn(Range region, int member) const;  // what the member carries of a region
  void FoldOwnPart(uint64_t t);
  void FoldOwnLanes(uint64_t t);
  void StartCrossing(uint64_t t);
};

}  // namespace farandole
