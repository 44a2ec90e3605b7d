// The functions of an MPI library that we use, looked up in it at run time; constants.h has its handles and numbers.
//
// A library is opened once and stays for the life of the process, since the program may use it, too. Any thread may
// call what is here; what MPI allows to several threads at once is up to the level that StartMpi asks for.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "backends/mpi/constants.h"
#include "common/status.h"
#include "reduce/reduce.h"

namespace farandole {

// A handle of MPI: MPI_Comm, MPI_Datatype and so on. The library's binary interface decides which member holds it:
// `number` for MPICH's. In memory both begin at the same place, so the address of a handle is right for all of them.
union MpiHandle {
  void* pointer = nullptr;
  int number;
};

// Arguments as the library takes them: handles become Raw, all others stay.
template <typename Raw>
struct MpiRaw {
  template <typename Parameter>
  static Parameter Of(Parameter parameter) {
    return parameter;
  }
  static Raw Of(MpiHandle handle);
  static Raw* Of(MpiHandle* handle);
};
template <>
inline int MpiRaw<int>::Of(MpiHandle handle) {
  return handle.number;
}
template <>
inline int* MpiRaw<int>::Of(MpiHandle* handle) {
  return &handle->number;
}
template <>
inline void* MpiRaw<void*>::Of(MpiHandle handle) {
  return handle.pointer;
}
template <>
inline void** MpiRaw<void*>::Of(MpiHandle* handle) {
  return &handle->pointer;
}

// A function of MPI, with the parameters of its C interface and MpiHandle for all kinds of handles. All of them return
// an error number.
template <typename... Parameters>
struct MpiFunction {
  const char* name;
  void* pointer = nullptr;

  int operator()(MpiAbi abi, Parameters... parameters) const {
    return abi == MpiAbi::kMpich ? Call<int>(parameters...) : Call<void*>(parameters...);
  }

 private:
  template <typename Raw>
  int Call(Parameters... parameters) const {
    const auto function = reinterpret_cast<int (*)(decltype(MpiRaw<Raw>::Of(parameters))...)>(pointer);
    return function(MpiRaw<Raw>::Of(parameters)...);
  }
};

// void (void* in, void* inout, int* count, MPI_Datatype* type)
using MpiReduceFunction = void (*)(void*, void*, int*, void*);

struct MpiLibrary {
  std::string path;
  std::string version;  // what it says of itself, in a few words
  MpiAbi abi = MpiAbi::kMpich;
  std::array<MpiHandle, kMpiKnown.size()> known;

  MpiFunction<char*, int*> get_library_version{"MPI_Get_library_version"};
  MpiFunction<int*> initialized{"MPI_Initialized"};
  MpiFunction<int*> finalized{"MPI_Finalized"};
  MpiFunction<int*, char***, int, int*> init_thread{"MPI_Init_thread"};
  MpiFunction<int*> query_thread{"MPI_Query_thread"};
  MpiFunction<> finalize{"MPI_Finalize"};
  MpiFunction<int, char*, int*> error_string{"MPI_Error_string"};
  MpiFunction<MpiHandle, int*> comm_rank{"MPI_Comm_rank"};
  MpiFunction<MpiHandle, int*> comm_size{"MPI_Comm_size"};
  MpiFunction<MpiHandle, MpiHandle> comm_set_errhandler{"MPI_Comm_set_errhandler"};
  MpiFunction<MpiHandle, MpiHandle, int, MpiHandle*> comm_create_group{"MPI_Comm_create_group"};
  MpiFunction<MpiHandle*> comm_free{"MPI_Comm_free"};
  MpiFunction<MpiHandle, MpiHandle*> comm_group{"MPI_Comm_group"};
  MpiFunction<MpiHandle, int, const int*, MpiHandle*> group_incl{"MPI_Group_incl"};
  MpiFunction<MpiHandle*> group_free{"MPI_Group_free"};
  MpiFunction<MpiReduceFunction, int, MpiHandle*> op_create{"MPI_Op_create"};
  MpiFunction<void*, int, MpiHandle, int, MpiHandle> bcast{"MPI_Bcast"};
  MpiFunction<const void*, void*, int, MpiHandle, MpiHandle, MpiHandle> allreduce{"MPI_Allreduce"};
  MpiFunction<const void*, void*, int, MpiHandle, MpiHandle, int, MpiHandle> reduce{"MPI_Reduce"};
  MpiFunction<const void*, void*, const int*, MpiHandle, MpiHandle, MpiHandle> reduce_scatter{"MPI_Reduce_scatter"};
  MpiFunction<const void*, int, MpiHandle, void*, const int*, const int*, MpiHandle, MpiHandle> allgatherv{
      "MPI_Allgatherv"};
  MpiFunction<const void*, const int*, const int*, MpiHandle, void*, const int*, const int*, MpiHandle, MpiHandle>
      alltoallv{"MPI_Alltoallv"};
  MpiFunction<const void*, int, MpiHandle, int, int, void*, int, MpiHandle, int, int, MpiHandle, void*> sendrecv{
      "MPI_Sendrecv"};

  MpiHandle Known(MpiKnown which) const { return known[static_cast<size_t>(which)]; }
  int thread_multiple() const { return kMpiThreadMultiple[static_cast<size_t>(abi)]; }
  void* in_place() const { return reinterpret_cast<void*>(kMpiInPlace[static_cast<size_t>(abi)]); }
  void* status_ignore() const { return reinterpret_cast<void*>(kMpiStatusIgnore[static_cast<size_t>(abi)]); }
  std::string Title() const;  // "Open MPI v5.0.11 (/usr/lib/libmpi.so.40)"

  // kInternal: "MPI_Bcast failed: <what the library says about it> (error 15, Open MPI v5.0.11)".
  template <typename... Parameters, typename... Arguments>
  Status Call(const MpiFunction<Parameters...>& function, Arguments... arguments) const {
    const int code = function(abi, arguments...);
    return code == kMpiSuccess ? Status::Ok() : Failed(function.name, code);
  }
  Status Failed(const char* call, int code) const;
};

// Where an MPI library may be.
struct MpiPlaces {
  std::string wanted;  // a path or name, then no other will do; "" for any
  std::string
      starter;  // "openmpi" or "mpich": whose launcher started this process, so whose library it must be; else ""
  std::vector<std::string> folders;  // looked into before the system's
};

// The names that are looked for, in this order. Open MPI's goes first where its launcher started the ranks: other
// libraries would not find them.
std::vector<std::string> MpiLibraryNames(const std::string& starter);

// Takes the wanted library, else one that this process has loaded already, else the first that there is. kInvalid says
// what was looked for and what to do.
Status OpenMpiLibrary(const MpiPlaces& places, const MpiLibrary** library);

// The folder `lib` of the Python environment in which this very program lies, where wheels put an MPI; else "".
std::string OwnLibraryFolder();

}  // namespace farandole
