// A communicator of MPI, and the collectives by MPI's calls, for any size. MPI counts in int, and libraries fail even
// below that limit, so data above `max_bytes` take several calls:
//
//   allreduce, broadcast    piece by piece
//   allgather               a broadcast from every position, piece by piece
//   reducescatter           a reduction to every position, piece by piece
//   alltoall                position p exchanges with p + k and p - k, for each k, piece by piece
//
// The library reduces by its own ops where they mean the same as the core's, else by functions that MPI calls back: it
// does not know 16-bit floats and bool, and its minimum and maximum may lose a NaN.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/mpi/library.h"

namespace farandole {

// True when tensors of this type can be reduced. Pure; any thread.
bool MpiKnows(DType dtype);

// Every function blocks until the other members have called it, too. One thread at a time uses it.
class MpiCommunicator {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 30;

  // max_bytes: at least 8, so that an element fits.
  explicit MpiCommunicator(const MpiLibrary& library, size_t max_bytes = kMaxBytes)
      : library_(library), max_bytes_(max_bytes) {}
  ~MpiCommunicator();
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  // All members make theirs in the order of the log. places: by position, the rank of each member in MPI_COMM_WORLD.
  Status Make(int set_id, const std::vector<int>& places, int position);

  // The others require that it was made, and, where there is a dtype, that MpiKnows it. input may be output.
  Status Allreduce(DType dtype, ReduceOp reduce, const void* input, void* output, size_t element_count) const;
  // Sends the root's data to all others, from and to one buffer on each rank.
  Status Broadcast(int root, void* data, size_t size_bytes) const;
  // The input may lie at its place in the output. rank_bytes: the size of every position's part.
  Status Allgather(const void* input, void* output, const std::vector<size_t>& rank_bytes) const;
  // send_bytes, recv_bytes: by position, the sizes of the parts that lie in input and output one after the other.
  Status Alltoall(const void* input, const std::vector<size_t>& send_bytes, void* output,
                  const std::vector<size_t>& recv_bytes) const;
  // The input is the whole vector, the output this rank's part. rank_bytes: as in Allgather.
  Status Reducescatter(DType dtype, ReduceOp reduce, const void* input, void* output,
                       const std::vector<size_t>& rank_bytes) const;

 private:
  // The parts of an alltoall that is too large for one call (communicator.cc).
  Status AgreeOnMost(size_t* size_bytes) const;
  Status Exchange(size_t to, const char* sent, size_t send_bytes, size_t from, char* received, size_t recv_bytes,
                  size_t rounds) const;

  const MpiLibrary& library_;
  const size_t max_bytes_;
  MpiHandle handle_;
  bool is_made_ = false;
  size_t position_ = 0;
};

}  // namespace farandole
