// Allgather among several groups of which some have several members. The bytes of every group cross once per lane.
//
//   put      my piece -> my slot, at its place in the round (parts.h)
//   combine  the slots of my group -> output; the lanes of my group's region that I carry -> my result; then these go
//            to their carriers in the other groups, whose lanes come into my result
//   finish   the other groups' regions: the carriers' results -> output
#pragma once

#include "backends/native/parted.h"

namespace farandole {

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
  Range LaneOf(Range region, int lane) const;
};

}  // namespace farandole
