// Alltoall within a group: everybody streams its parts through its slots, everybody takes what is for it.
//
//   stream of m   [ sizes | part for m+1 | part for m+2 | ... ]     modulo the number of members; m's own part is
//                                                                      copied at once
//   round t       [ one slot of it ]
//
// A member knows only what it sends and gets, so the sizes travel at the beginning: from them everybody learns in the
// first round where its parts lie in the other streams and how many rounds there are. Beginning with the next member
// spreads the readers: with equal parts every round holds, in every stream, data for another member.
#pragma once

#include "collectives/stages.h"
#include "collectives/task.h"

namespace farandole {

class StagedAlltoall final : public StagedOperation {
 public:
  // positions[m] is the position of member m of this group.
  StagedAlltoall(const Staging* staging, uint64_t first_round, const Task* task, std::vector<int> positions);

 protected:
  void Put(uint64_t t) override;
  Status Combine(uint64_t t, bool* ready, bool* moved) override;
  bool Finish(uint64_t t) override;

 private:
  // Of one stream: where what concerns this member lies.
  struct Stretch {
    uint64_t stream_offset;
    size_t tensor_offset;  // in the input or output
    size_t size_bytes;
  };
  size_t HeaderBytes() const;
  void ReadHeaders();

  const Task* task_;
  std::vector<int> positions_;
  std::vector<Stretch> sent_;      // by distance - 1
  std::vector<Stretch> received_;  // by distance behind - 1
  uint64_t stream_bytes_ = 0;
};

}  // namespace farandole
