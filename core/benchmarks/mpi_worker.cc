// A rank of an MPI library in the benchmark: MPI_Allreduce in place. Started by the library's mpiexec as
//
//   mpi_worker openmpi|mpich <path of libmpi.so> [threads]
//
// threads: it is begun for many of them, as Farandole begins it.
// The library is looked up at run time, so that nothing of ours is compiled against one. The constants of its header
// stand below: handles are pointers to objects of Open MPI, and numbers for MPICH. Both pass in a register of 64 bits.
#include <dlfcn.h>

#include <cstdint>

#include "worker.h"

namespace {

using Handle = intptr_t;

struct Mpi {
  Handle world, type_float, sum;
  void* in_place;
  int (*InitThread)(int*, char***, int, int*);
  int (*Rank)(Handle, int*);
  int (*Size)(Handle, int*);
  int (*Allreduce)(const void*, void*, int, Handle, Handle, Handle);
  int (*Finalize)();
};

Mpi mpi;

template <typename Symbol>
Symbol Find(void* library, const char* name) {
  void* const found = dlsym(library, name);
  bench::Require(found != nullptr, std::string("the MPI library has no ") + name);
  return reinterpret_cast<Symbol>(found);
}

Mpi Open(const std::string& kind, const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  bench::Require(library != nullptr, library ? "" : dlerror());
  Mpi found{};
  if (kind == "openmpi") {
    found.world = Find<Handle>(library, "ompi_mpi_comm_world");
    found.type_float = Find<Handle>(library, "ompi_mpi_float");
    found.sum = Find<Handle>(library, "ompi_mpi_op_sum");
    found.in_place = reinterpret_cast<void*>(1);
  } else {
    found.world = 0x44000000;
    found.type_float = 0x4c00040a;
    found.sum = 0x58000003;
    found.in_place = reinterpret_cast<void*>(-1);
  }
  found.InitThread = Find<decltype(found.InitThread)>(library, "MPI_Init_thread");
  found.Rank = Find<decltype(found.Rank)>(library, "MPI_Comm_rank");
  found.Size = Find<decltype(found.Size)>(library, "MPI_Comm_size");
  found.Allreduce = Find<decltype(found.Allreduce)>(library, "MPI_Allreduce");
  found.Finalize = Find<decltype(found.Finalize)>(library, "MPI_Finalize");
  return found;
}

void Sum(float* data, size_t count) {
  const int code = mpi.Allreduce(mpi.in_place, data, static_cast<int>(count), mpi.type_float, mpi.sum, mpi.world);
  bench::Require(code == 0, "MPI_Allreduce failed");
}

}  // namespace

int main(int count, char** arguments) {
  bench::Require(count == 3 || count == 4, "usage: mpi_worker openmpi|mpich <path of libmpi.so> [threads]");
  mpi = Open(arguments[1], arguments[2]);
  int rank = 0, ranks = 0;
  constexpr int kSingle = 0, kMultiple = 3;  // MPI_THREAD_...
  const int wanted = count == 4 ? kMultiple : kSingle;
  int level = 0;
  mpi.InitThread(nullptr, nullptr, wanted, &level);
  bench::Require(level >= wanted, "the library was built without threads");
  mpi.Rank(mpi.world, &rank);
  mpi.Size(mpi.world, &ranks);
  bench::PinToCore(rank);
  bench::ServeSums(rank, ranks, Sum);
  mpi.Finalize();
  return 0;
}
