// Compares the tables of backends/mpi/library.h with the header of an MPI library.
//
//   c++ -std=c++17 -I core/src -I <prefix>/include -DHEADER='<mpi.h>' -DABI=kMpich mpi_constants.cc && ./a.out
//
// ABI: whose header it is. Ends with 0, or says what differs. Nothing of the library is linked: of Open MPI, whose
// handles are addresses of variables, the names of the variables are compared.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include HEADER

#include <cstdint>
#include <cstdio>
#include <string>

#include "backends/mpi/library.h"

namespace {

using farandole::MpiAbi;

constexpr MpiAbi kAbi = MpiAbi::ABI;
constexpr auto kColumn = static_cast<size_t>(kAbi);

#define AS_WRITTEN(expanded) #expanded
#define TEXT(name) AS_WRITTEN(name)
#ifdef OPEN_MPI  // a number would need the library
#define NUMBER(name) 0
#else
#define NUMBER(name) ((uintptr_t)(name))
#endif
#define HANDLE(name) {#name, TEXT(name), NUMBER(name)}

struct Handle {
  const char* name;
  std::string text;  // what the header makes of the name
  uintptr_t number;
};

// In the order of MpiKnown.
const Handle kHandles[] = {HANDLE(MPI_COMM_WORLD), HANDLE(MPI_ERRORS_RETURN), HANDLE(MPI_UINT8_T), HANDLE(MPI_INT8_T),
                           HANDLE(MPI_UINT16_T),   HANDLE(MPI_INT16_T),       HANDLE(MPI_INT32_T), HANDLE(MPI_INT64_T),
                           HANDLE(MPI_UINT32_T),   HANDLE(MPI_UINT64_T),      HANDLE(MPI_FLOAT),   HANDLE(MPI_DOUBLE),
                           HANDLE(MPI_SUM),        HANDLE(MPI_MIN),           HANDLE(MPI_MAX),     HANDLE(MPI_PROD)};

int g_differences = 0;

void Expect(bool same, const std::string& what) {
  if (same) return;
  std::printf("%s differs from the header\n", what.c_str());
  ++g_differences;
}

bool IsSame(const Handle& handle, const farandole::MpiKnownRow& row) {
  if (std::string(handle.name) != row.name) return false;
  if (kAbi == MpiAbi::kOpenMpi) return handle.text.find(std::string("(") + row.open_mpi + ")") != std::string::npos;
  // A handle that is an int is as wide as one.
  return static_cast<uint32_t>(handle.number) == row.mpich;
}

// Addresses have no constant expressions, so all is compared at run time.
intptr_t AddressOf(const void* address) { return reinterpret_cast<intptr_t>(address); }

}  // namespace

int main() {
  static_assert(std::size(kHandles) == farandole::kMpiKnown.size());
  for (size_t i = 0; i < farandole::kMpiKnown.size(); ++i)
    Expect(IsSame(kHandles[i], farandole::kMpiKnown[i]), farandole::kMpiKnown[i].name + (": " + kHandles[i].text));
  Expect(farandole::kMpiThreadMultiple == MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE");
  Expect(farandole::kMpiInPlace[kColumn] == AddressOf(MPI_IN_PLACE), "MPI_IN_PLACE");
  Expect(farandole::kMpiStatusIgnore[kColumn] == AddressOf(MPI_STATUS_IGNORE), "MPI_STATUS_IGNORE");
  Expect(farandole::kMpiSuccess == MPI_SUCCESS, "MPI_SUCCESS");
  Expect(farandole::kMpiMaxErrorString >= MPI_MAX_ERROR_STRING, "MPI_MAX_ERROR_STRING");
  Expect(farandole::kMpiMaxVersionString >= MPI_MAX_LIBRARY_VERSION_STRING, "MPI_MAX_LIBRARY_VERSION_STRING");
  Expect(sizeof(MPI_Comm) == (kAbi == MpiAbi::kMpich ? sizeof(int) : sizeof(void*)), "the size of MPI_Comm");
  Expect(sizeof(MPI_Datatype) == sizeof(MPI_Comm) && sizeof(MPI_Op) == sizeof(MPI_Comm), "the size of a handle");
  if (g_differences == 0) std::printf("%zu handles and 7 numbers are those of the header\n", std::size(kHandles));
  return g_differences == 0 ? 0 : 1;
}
