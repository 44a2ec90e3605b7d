// MPI in this process: begun by the program or by us, at most once, and ended by who began it; this process's place in
// it; and the communicators of our process sets.
//
// MPI cannot be begun again once it was ended, so what we began is ended when the process exits, not at shutdown. The
// functions are for any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/mpi/library.h"
#include "common/status.h"

namespace farandole {

// Afterwards MPI is there for all threads. kInvalid says why it cannot be. launcher: as MpiPlaces has it.
Status StartMpi(const MpiLibrary& library, const std::string& launcher);

// Says that a thread of ours may be within MPI, in a call that does not end: MPI_Finalize would wait for it, so it is
// not called any more.
void LeaveMpiUnfinished();

// While there is one, a thread of ours is within MPI and may not come back: MPI_Finalize is not called then, either.
class WithinMpi {
 public:
  WithinMpi();
  ~WithinMpi();
  WithinMpi(const WithinMpi&) = delete;
  WithinMpi& operator=(const WithinMpi&) = delete;
};

// *rank: this process's in MPI_COMM_WORLD. kInvalid where MPI knows fewer ranks than the job has; it says what to do.
// REQUIRES: StartMpi.
Status FindPlaceInMpi(const MpiLibrary& library, int world_size, int* rank);

// *all: what all ranks say, by rank, in a communicator of its own. kInvalid where this process has another place in MPI
// than its launcher's variables said. REQUIRES: StartMpi.
Status ExchangeByMpi(const MpiLibrary& library, int rank, int size, const std::string& mine,
                     std::vector<std::string>* all);

// Owns the communicators of our process sets. Making one is collective among the set's ranks, so all of them make
// theirs in the same order, that of the log. One thread at a time uses it.
class MpiCommunicators {
 public:
  explicit MpiCommunicators(const MpiLibrary* library) : library_(library) {}
  ~MpiCommunicators();
  MpiCommunicators(const MpiCommunicators&) = delete;
  MpiCommunicators& operator=(const MpiCommunicators&) = delete;

  // places: by position, the rank of each member of the set in MPI_COMM_WORLD.
  Status Make(int set_id, const std::vector<int>& places);
  MpiHandle Of(int set_id) const { return by_set_.at(set_id); }  // REQUIRES: it was made
  void Forget(int set_id);

 private:
  void Free(MpiHandle communicator) const;

  const MpiLibrary* const library_;
  std::map<int, MpiHandle> by_set_;  // by the set's id
};

}  // namespace farandole
