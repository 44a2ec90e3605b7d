// Collectives along the first dimension as calls of NCCL: one where all ranks have as many rows, else one for each
// rank. The driver alone lists them.
#pragma once

#include <cstddef>

#include "backends/backend.h"
#include "backends/nccl/calls.h"

namespace farandole {

struct Rows {
  void Gather() const;                                 // allgather
  void Exchange() const;                               // alltoall
  void Scatter(const NcclReduction& reduction) const;  // reducescatter

  const NcclLibrary& nccl;
  NcclComm comm;
  const Task& task;
  Stream stream;
  const std::byte* from;
  std::byte* to;
  CallList* calls;
};

}  // namespace farandole
