// MPI in this process: started at most once, by the program or by this library, and ended by whoever started it. Also
// this process's rank in MPI, and the communicators of process sets.
//
// MPI cannot be started again once it was ended, so an MPI that this library started ends when the process exits, not
// at shutdown. Any thread may call the functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/mpi/library.h"
#include "common/status.h"

namespace farandole {

// Starts MPI for all threads, unless it is started. kInvalid says why that failed. launcher: as in MpiPlaces.
Status StartMpi(const MpiLibrary& library, const std::string& launcher);

// Says that a thread of this library may stay within MPI in a call that does not end. MPI_Finalize would wait for it,
// so it is not called any more.
void LeaveMpiUnfinished();

// While there is one, a thread of this library is within MPI and may not return, so MPI_Finalize is not called then,
// either.
class WithinMpi {
 public:
  WithinMpi();
  ~WithinMpi();
  WithinMpi(const WithinMpi&) = delete;
  WithinMpi& operator=(const WithinMpi&) = delete;
};

// Sets *rank to this process's rank in MPI_COMM_WORLD. kInvalid where MPI has fewer ranks than the job; the message
// says what to do. REQUIRES: StartMpi.
Status FindPlaceInMpi(const MpiLibrary& library, int world_size, int* rank);

// Gathers `mine` of all ranks, by rank, in a communicator of its own. kInvalid where this process has another rank in
// MPI than its launcher's variables said. REQUIRES: StartMpi.
Status ExchangeByMpi(const MpiLibrary& library, int rank, int size, const std::string& mine,
                     std::vector<std::string>* all);

// Owns the communicators of process sets. To make one is collective among the set's ranks, so all of them make theirs
// in the order of the log. One thread at a time uses it.
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
