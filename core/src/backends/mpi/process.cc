#include "backends/mpi/process.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "backends/mpi/collectives.h"

namespace farandole {
namespace {

std::mutex g_mutex;                         // one start at a time
const MpiLibrary* g_begun_by_us = nullptr;  // guarded by g_mutex
std::atomic<bool> g_unfinished{false};      // LeaveMpiUnfinished
std::atomic<int> g_within{0};               // objects of WithinMpi

// MPI_Finalize waits for threads that are within MPI, so it is not called while a thread is there that may not return.
void FinishAtExit() {
  if (g_within > 0) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  int finalized = 0;
  if (g_unfinished || g_begun_by_us == nullptr) return;
  if (g_begun_by_us->finalized(g_begun_by_us->abi, &finalized) != kMpiSuccess || finalized != 0) return;
  g_begun_by_us->finalize(g_begun_by_us->abi);
}

// A thread of this library calls MPI, while the program's own threads may call it, too.
Status CheckLevel(const MpiLibrary& library, int level, const std::string& what, const std::string& remedy) {
  if (level >= library.thread_multiple()) return Status::Ok();
  return Invalid(what, " without MPI_THREAD_MULTIPLE (level ", level, " of ", library.thread_multiple(), ", ",
                 library.Title(), "), but Farandole calls MPI in a thread of its own: ", remedy);
}

// Checked before MPI_Init_thread is called: MPICH ends a process that Open MPI's launcher has started.
Status CheckLauncher(const MpiLibrary& library, const std::string& launcher) {
  if (launcher != "openmpi" || library.version.find("Open MPI") != std::string::npos) return Status::Ok();
  return Invalid("Open MPI's mpirun started this process, but the library is ", library.Title(),
                 ": start the job with the mpirun that comes with this library, or set FARANDOLE_MPI_LIB to the "
                 "libmpi.so.40 of the mpirun you use");
}

Status Begin(const MpiLibrary& library) {
  int level = 0;
  FRD_RETURN_IF_ERROR(library.Call(library.init_thread, nullptr, nullptr, library.thread_multiple(), &level));
  g_begun_by_us = &library;
  std::atexit(&FinishAtExit);
  return CheckLevel(library, level, "MPI started",
                    "install a library that was built for threads, or set FARANDOLE_MPI_LIB to its path");
}

}  // namespace

Status StartMpi(const MpiLibrary& library, const std::string& launcher) {
  std::lock_guard<std::mutex> lock(g_mutex);
  int finalized = 0, initialized = 0, level = 0;
  FRD_RETURN_IF_ERROR(library.Call(library.finalized, &finalized));
  if (finalized != 0)
    return Invalid("MPI (", library.Title(),
                   ") cannot be used any more: the program has called MPI_Finalize. Call farandole's init before it, "
                   "and end MPI when the program ends");
  FRD_RETURN_IF_ERROR(library.Call(library.initialized, &initialized));
  if (initialized == 0) {
    FRD_RETURN_IF_ERROR(CheckLauncher(library, launcher));
    return Begin(library);
  }
  FRD_RETURN_IF_ERROR(library.Call(library.query_thread, &level));
  return CheckLevel(library, level, "the program has initialized MPI",
                    "ask MPI_Init_thread for MPI_THREAD_MULTIPLE (mpi4py does, unless mpi4py.rc.thread_level says "
                    "otherwise), or call farandole's init first");
}

void LeaveMpiUnfinished() { g_unfinished = true; }

WithinMpi::WithinMpi() { ++g_within; }
WithinMpi::~WithinMpi() { --g_within; }

Status FindPlaceInMpi(const MpiLibrary& library, int world_size, int* rank) {
  const MpiHandle world = library.Known(MpiKnown::kCommWorld);
  int size = 0;
  FRD_RETURN_IF_ERROR(library.Call(library.comm_rank, world, rank));
  FRD_RETURN_IF_ERROR(library.Call(library.comm_size, world, &size));
  if (size >= world_size) return Status::Ok();
  if (size == 1) {
    return Invalid("of ", world_size, " ranks this one is alone in MPI: ", library.Title(),
                   " was not started by its own launcher. Start the job with the mpirun that comes with this library, "
                   "or set FARANDOLE_MPI_LIB to the library that comes with the launcher you use");
  }
  return Invalid("MPI (", library.Title(), ") has ", size, " ranks, but this job has ", world_size,
                 ": start all of them with one mpirun");
}

Status ExchangeByMpi(const MpiLibrary& library, int rank, int size, const std::string& mine,
                     std::vector<std::string>* all) {
  int place = -1;
  FRD_RETURN_IF_ERROR(FindPlaceInMpi(library, size, &place));
  if (place != rank)
    return Invalid("this process is rank ", rank, " by its launcher's variables, but rank ", place, " in MPI (",
                   library.Title(), "): start all ranks with one mpirun");
  std::vector<int> everybody(static_cast<size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
  MpiCommunicators communicators(&library);
  FRD_RETURN_IF_ERROR(communicators.Make(0, everybody));
  const MpiCollectives collectives(&library);
  const std::vector<size_t> numbers(everybody.size(), sizeof(uint64_t));
  std::vector<uint64_t> sizes(everybody.size());
  const uint64_t own = mine.size();
  FRD_RETURN_IF_ERROR(collectives.Allgather(communicators.Of(0), rank, &own, sizes.data(), numbers));
  const std::vector<size_t> rank_bytes(sizes.begin(), sizes.end());
  std::string joined(std::accumulate(rank_bytes.begin(), rank_bytes.end(), size_t{0}), '\0');
  FRD_RETURN_IF_ERROR(collectives.Allgather(communicators.Of(0), rank, mine.data(), joined.data(), rank_bytes));
  all->clear();
  for (size_t at = 0, r = 0; r < rank_bytes.size(); at += rank_bytes[r++])
    all->push_back(joined.substr(at, rank_bytes[r]));
  return Status::Ok();
}

MpiCommunicators::~MpiCommunicators() {
  for (const auto& [set, communicator] : by_set_) Free(communicator);
}

// Only the members call MPI_Comm_create_group: other ranks may be busy, and need not know of the set.
Status MpiCommunicators::Make(int set_id, const std::vector<int>& places) {
  std::vector<int> sorted = places;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twin = std::adjacent_find(sorted.begin(), sorted.end()); twin != sorted.end())
    return Invalid("two ranks of this job are rank ", *twin, " in MPI (", library_->Title(),
                   "): start all of them with one mpirun");
  const MpiHandle world = library_->Known(MpiKnown::kCommWorld);
  MpiHandle everybody, group, communicator;
  FRD_RETURN_IF_ERROR(library_->Call(library_->comm_group, world, &everybody));
  FRD_RETURN_IF_ERROR(
      library_->Call(library_->group_incl, everybody, static_cast<int>(places.size()), places.data(), &group));
  constexpr int kTags = 1 << 14;  // MPI promises 32767
  FRD_RETURN_IF_ERROR(library_->Call(library_->comm_create_group, world, group, set_id % kTags, &communicator));
  FRD_RETURN_IF_ERROR(library_->Call(library_->group_free, &group));
  FRD_RETURN_IF_ERROR(library_->Call(library_->group_free, &everybody));
  by_set_.emplace(set_id, communicator);
  // Without this handler the library ends the process at the first error.
  return library_->Call(library_->comm_set_errhandler, communicator, library_->Known(MpiKnown::kErrorsReturn));
}

void MpiCommunicators::Forget(int set_id) {
  const auto known = by_set_.find(set_id);
  if (known == by_set_.end()) return;
  Free(known->second);
  by_set_.erase(known);
}

void MpiCommunicators::Free(MpiHandle communicator) const { library_->comm_free(library_->abi, &communicator); }

}  // namespace farandole
