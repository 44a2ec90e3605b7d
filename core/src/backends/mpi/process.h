// MPI in this process: begun by the program or by us, at most once, and ended by who began it.
//
// MPI cannot be begun again once it was ended, so what we began is ended when the process exits, not at shutdown.
// Any thread.
#pragma once

#include <string>

#include "backends/mpi/library.h"
#include "common/status.h"

namespace farandole {

// Afterwards MPI is there for all threads. kInvalid says why it cannot be. starter: as MpiPlaces has it.
Status StartMpi(const MpiLibrary& library, const std::string& starter);

// A thread of ours may be within MPI, in a call that does not end: MPI_Finalize would wait for it, so it is not called.
void LeaveMpiUnfinished();

// While there is one, a thread of ours is within MPI and may not come back: likewise.
class WithinMpi {
 public:
  WithinMpi();
  ~WithinMpi();
  WithinMpi(const WithinMpi&) = delete;
  WithinMpi& operator=(const WithinMpi&) = delete;
};

// The op and type by which the library reduces. Its own where it has them and means the same as we do; 16-bit floats
// and bool it does not know, and in its minima and maxima a NaN may get lost.
struct MpiReduction {
  MpiHandle type;
  MpiHandle op;
};

bool MpiReduces(DType dtype, ReduceOp reduce);

// REQUIRES: StartMpi; MpiReduces; reduce is not kAverage.
Status FindMpiReduction(const MpiLibrary& library, DType dtype, ReduceOp reduce, MpiReduction* reduction);

}  // namespace farandole
