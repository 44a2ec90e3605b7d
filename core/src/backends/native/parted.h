// A crossed operation on parts of any sizes (parts.h). The driver alone uses it.
#pragma once

#include "backends/native/crossed.h"
#include "backends/native/parts.h"

namespace farandole {

class PartedOperation : public CrossedOperation {
 public:
  PartedOperation(const Staging* staging, uint64_t first_round, const Work* work, const Parts& parts,
                  CrossExchange* cross)
      : CrossedOperation(staging, first_round, parts.rounds(), cross),
        work_(work),
        parts_(parts),
        lane_count_(cross->topology().LaneCount(parts.total_bytes())) {}

 protected:
  const Work* const work_;
  const Parts parts_;
  const int lane_count_;
};

}  // namespace farandole
