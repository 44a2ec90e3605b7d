// Collectives along the first dimension as calls of NCCL: one where all ranks have as many rows, else one for each
// rank. The driver alone calls, in a group of calls and with the device current.
#pragma once

#include <cstddef>

#include "backends/backend.h"
#include "backends/nccl/communicator.h"

namespace farandole {

struct Rows {
  Status Gather() const;                    // allgather
  Status Exchange() const;                  // alltoall
  Status Scatter(NcclReduce reduce) const;  // reducescatter

  const NcclLibrary& nccl;
  const Communicator& communicator;
  const Work& work;
  Stream stream;
  const std::byte* from;
  std::byte* to;
};

}  // namespace farandole
