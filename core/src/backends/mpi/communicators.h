// MPI's communicators of our process sets.
//
// Making one is collective among the set's ranks, so they must be made in the same order on all of them: that of the
// log. Used by one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/mpi/library.h"
#include "world/process_set.h"

namespace farandole {

// Does MPI know as many ranks as we have? kInvalid says what to do; *rank: this process's in MPI_COMM_WORLD.
// REQUIRES: StartMpi.
Status FindPlaceInMpi(const MpiLibrary& library, int world_size, int* rank);

// What all ranks say, by rank, in a communicator of its own. kInvalid where this process has another place in MPI than
// its launcher's variables said. REQUIRES: StartMpi.
Status ExchangeByMpi(const MpiLibrary& library, int rank, int size, const std::string& mine,
                     std::vector<std::string>* all);

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
  std::map<int, MpiHandle> by_set_;
};

}  // namespace farandole
