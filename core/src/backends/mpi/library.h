// The functions of an MPI library that the core uses, looked up in it at run time, and its handles and numbers.
//
// A library is opened once and stays for the life of the process, since the program may use it, too. MPI is started at
// most once, by the program or by this library, and ended by whoever started it; an MPI that this library started ends
// when the process exits, not at shutdown, since it cannot be started again. Any thread may call what is here; which
// calls several threads may make at once depends on the thread level that StartMpi asks for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/status.h"
#include "reduce/reduce.h"

namespace farandole {

// ---- handles and numbers
//
// The numbers and handles that MPI's header would define, for each of the binary interfaces that libraries have. No
// header is included, so one build works with all of them.
//
//   interface   who                                   handles are    whose header has the values
//   kMpich      MPICH 3 to 5, Intel MPI, MVAPICH,     int            MPICH 4.0.2 (Debian) and 5.0.2 (wheel),
//               Cray's, ParaStation: libmpi.so.12                    fixed by the "MPICH ABI Compatibility Initiative"
//   kOpenMpi    Open MPI 4 and 5: libmpi.so.40        addresses of   Open MPI 4.1.4 (Debian) and 5.0.11
//                                                     its variables  (wheel): the names of variables
//
// tests/collectives/backends/test_mpi_constants.py compares them with the wheels' headers; Debian's were compared in
// November 2026. MPI 5.0's standard interface (libmpi_abi.so.1) is refused: libraries that have it bring one of these,
// too.

enum class MpiAbi { kMpich, kOpenMpi };

// A predefined handle: communicators, error handlers, and the types and operations that MPI knows and the core reduces
// by.
enum class MpiKnown {
  kCommWorld,
  kErrorsReturn,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kUint32,
  kUint64,
  kFloat,
  kDouble,
  kSum,
  kMin,
  kMax,
  kProduct,
  kNone = -1,
};

struct MpiKnownRow {
  const char* name;  // in the header
  uint32_t mpich;
  const char* open_mpi;  // the variable
};

inline constexpr std::array<MpiKnownRow, 16> kMpiKnown = {{
    {"MPI_COMM_WORLD", 0x44000000, "ompi_mpi_comm_world"},
    {"MPI_ERRORS_RETURN", 0x54000001, "ompi_mpi_errors_return"},
    {"MPI_UINT8_T", 0x4c00013b, "ompi_mpi_uint8_t"},
    {"MPI_INT8_T", 0x4c000137, "ompi_mpi_int8_t"},
    {"MPI_UINT16_T", 0x4c00023c, "ompi_mpi_uint16_t"},
    {"MPI_INT16_T", 0x4c000238, "ompi_mpi_int16_t"},
    {"MPI_INT32_T", 0x4c000439, "ompi_mpi_int32_t"},
    {"MPI_INT64_T", 0x4c00083a, "ompi_mpi_int64_t"},
    {"MPI_UINT32_T", 0x4c00043d, "ompi_mpi_uint32_t"},
    {"MPI_UINT64_T", 0x4c00083e, "ompi_mpi_uint64_t"},
    {"MPI_FLOAT", 0x4c00040a, "ompi_mpi_float"},
    {"MPI_DOUBLE", 0x4c00080b, "ompi_mpi_double"},
    {"MPI_SUM", 0x58000003, "ompi_mpi_op_sum"},
    {"MPI_MIN", 0x58000002, "ompi_mpi_op_min"},
    {"MPI_MAX", 0x58000001, "ompi_mpi_op_max"},
    {"MPI_PROD", 0x58000004, "ompi_mpi_op_prod"},
}};

// Numbers and addresses, by MpiAbi.
inline constexpr std::array<intptr_t, 2> kMpiInPlace = {-1, 1};      // MPI_IN_PLACE
inline constexpr std::array<intptr_t, 2> kMpiStatusIgnore = {1, 0};  // MPI_STATUS_IGNORE
inline constexpr int kMpiThreadMultiple = 3;                         // MPI_THREAD_MULTIPLE, everywhere
inline constexpr int kMpiSuccess = 0;                                // MPI_SUCCESS, everywhere
inline constexpr size_t kMpiMaxErrorString = 512;                    // the largest MPI_MAX_ERROR_STRING
inline constexpr size_t kMpiMaxVersionString = 8192;                 // the largest MPI_MAX_LIBRARY_VERSION_STRING

// ---- functions

// A handle of MPI: MPI_Comm, MPI_Datatype and so on. The library's binary interface decides which member holds it:
// `number` for MPICH's. In memory both begin at the same place, so the address of a handle is right for all of them.
union MpiHandle {
  void* pointer = nullptr;
  int number;
};

// An argument as the library takes it: handles become Raw, which is int or void*, all others stay.
template <typename Raw, typename Argument>
auto RawOf(Argument argument) {
  if constexpr (std::is_same_v<Argument, MpiHandle*>) {
    return reinterpret_cast<Raw*>(argument);  // a union has the address of its members
  } else if constexpr (!std::is_same_v<Argument, MpiHandle>) {
    return argument;
  } else if constexpr (std::is_same_v<Raw, int>) {
    return argument.number;
  } else {
    return argument.pointer;
  }
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
    const auto function = reinterpret_cast<int (*)(decltype(RawOf<Raw>(parameters))...)>(pointer);
    return function(RawOf<Raw>(parameters)...);
  }
};

// void (void* in, void* inout, int* count, MPI_Datatype* type)
using MpiReduceFunction = void (*)(void*, void*, int*, void*);

struct MpiLibrary {
  std::string path;
  std::string version;  // what the library says of itself, shortened
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
struct MpiSearch {
  std::string wanted;    // a path or name, which must be used; "" for any
  std::string launcher;  // "openmpi" or "mpich": the MPI whose launcher started this process; else ""
  std::string folder;    // looked into before the system's; "" for none
};

// Returns the names to look for, in order. Open MPI's come first where its launcher started the ranks, since other
// libraries would not find these.
std::vector<std::string> MpiLibraryNames(const std::string& launcher);

// Takes the wanted library, else one that this process has loaded already, else the first that is found. kInvalid says
// what was looked for and what to do.
Status OpenMpiLibrary(const MpiSearch& search, const MpiLibrary** library);

// Returns the folder `lib` of this program's Python environment, where wheels put an MPI; else "".
std::string OwnLibraryFolder();

// ---- MPI in this process

// Starts MPI for all threads, unless it is started. kInvalid says why that failed. launcher: as in MpiSearch.
Status StartMpi(const MpiLibrary& library, const std::string& launcher);

// Counts the threads of this library that are within MPI in a call that may not end. MPI_Finalize would wait for them,
// so it is not called while there is one.
void EnterMpiForLong();
void LeaveMpi();

// Sets *rank to this process's rank in MPI_COMM_WORLD. kInvalid where MPI has fewer ranks than the job; the message
// says what to do. REQUIRES: StartMpi.
Status FindRankInMpi(const MpiLibrary& library, int world_size, int* rank);

}  // namespace farandole
