// The numbers and handles that MPI's header would define, for each of the binary interfaces that libraries have. No
// header is included: one build of ours works with all of them.
//
//   interface   who                                   handles are    whose header has the values
//   kMpich      MPICH 3 to 5, Intel MPI, MVAPICH,     int            MPICH 4.0.2 (Debian) and 5.0.2 (wheel),
//               Cray's, ParaStation: libmpi.so.12                    fixed by the "MPICH ABI Compatibility Initiative"
//   kStandard   MPICH 5, Intel MPI 2021.17 on,        pointers to    mpi_abi.h of MPICH 5.0.2 (wheel), which is that of
//               Open MPI 6: libmpi_abi.so.1           no object      MPI 5.0's appendix A, ABI 1.0
//   kOpenMpi    Open MPI 4 and 5: libmpi.so.40        addresses of   Open MPI 4.1.4 (Debian) and 5.0.11
//                                                     its variables  (wheel): the names of variables
//
// tests/backends/test_mpi_constants.py compares them with the wheels' headers; Debian's were compared in November 2026.
// Values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farandole {

enum class MpiAbi { kMpich, kStandard, kOpenMpi };
const char* NameOf(MpiAbi abi);  // "MPICH's", for "... binary interface"

// A predefined handle: communicators, error handlers, and of what we reduce the types and operations that MPI knows.
enum class MpiKnown {
  kCommWorld,
  kErrorsReturn,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
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
  uint32_t standard;
  const char* open_mpi;  // the variable
};

inline constexpr std::array<MpiKnownRow, 14> kMpiKnown = {{
    {"MPI_COMM_WORLD", 0x44000000, 0x101, "ompi_mpi_comm_world"},
    {"MPI_ERRORS_RETURN", 0x54000001, 0x143, "ompi_mpi_errors_return"},
    {"MPI_UINT8_T", 0x4c00013b, 0x241, "ompi_mpi_uint8_t"},
    {"MPI_INT8_T", 0x4c000137, 0x240, "ompi_mpi_int8_t"},
    {"MPI_UINT16_T", 0x4c00023c, 0x249, "ompi_mpi_uint16_t"},
    {"MPI_INT16_T", 0x4c000238, 0x248, "ompi_mpi_int16_t"},
    {"MPI_INT32_T", 0x4c000439, 0x250, "ompi_mpi_int32_t"},
    {"MPI_INT64_T", 0x4c00083a, 0x258, "ompi_mpi_int64_t"},
    {"MPI_FLOAT", 0x4c00040a, 0x210, "ompi_mpi_float"},
    {"MPI_DOUBLE", 0x4c00080b, 0x214, "ompi_mpi_double"},
    {"MPI_SUM", 0x58000003, 0x21, "ompi_mpi_op_sum"},
    {"MPI_MIN", 0x58000002, 0x22, "ompi_mpi_op_min"},
    {"MPI_MAX", 0x58000001, 0x23, "ompi_mpi_op_max"},
    {"MPI_PROD", 0x58000004, 0x24, "ompi_mpi_op_prod"},
}};

// Numbers and addresses, by MpiAbi.
inline constexpr std::array<int, 3> kMpiThreadMultiple = {3, 4096, 3};  // MPI_THREAD_MULTIPLE
inline constexpr std::array<intptr_t, 3> kMpiInPlace = {-1, 1, 1};      // MPI_IN_PLACE
inline constexpr std::array<intptr_t, 3> kMpiStatusIgnore = {1, 0, 0};  // MPI_STATUS_IGNORE
inline constexpr int kMpiSuccess = 0;                                   // MPI_SUCCESS, everywhere
inline constexpr size_t kMpiMaxErrorString = 512;                       // the largest MPI_MAX_ERROR_STRING
inline constexpr size_t kMpiMaxVersionString = 8192;                    // the largest MPI_MAX_LIBRARY_VERSION_STRING

}  // namespace farandole
