#include "support/fake_mpi.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>

#include "backends/mpi/library.h"

#define EXPORT __attribute__((visibility("default")))
#define MPI_CALL extern "C" EXPORT int

using farandole::kMpiKnown;
using farandole::MpiAbi;
using farandole::MpiKnown;

constexpr MpiAbi kAbi = MpiAbi::FAKE_MPI_ABI;  // kMpich or kOpenMpi
using Handle = std::conditional_t<kAbi == MpiAbi::kMpich, int, void*>;

extern "C" {
EXPORT farandole::FakeMpi fake_mpi;
#ifdef FAKE_MPI_VARIABLES  // whose addresses are Open MPI's handles, in the order of MpiKnown
EXPORT char ompi_mpi_comm_world, ompi_mpi_errors_return, ompi_mpi_uint8_t, ompi_mpi_int8_t, ompi_mpi_uint16_t,
    ompi_mpi_int16_t, ompi_mpi_int32_t, ompi_mpi_int64_t, ompi_mpi_uint32_t, ompi_mpi_uint64_t, ompi_mpi_float,
    ompi_mpi_double, ompi_mpi_op_sum, ompi_mpi_op_min, ompi_mpi_op_max, ompi_mpi_op_prod;
#endif
}

namespace {

enum Code { kSuccess = 0, kOther = 15, kInvalidHandle = 5, kNotInitialized = 23 };

#ifdef FAKE_MPI_VARIABLES
char* const kVariables[] = {&ompi_mpi_comm_world, &ompi_mpi_errors_return, &ompi_mpi_uint8_t, &ompi_mpi_int8_t,
                            &ompi_mpi_uint16_t,   &ompi_mpi_int16_t,       &ompi_mpi_int32_t, &ompi_mpi_int64_t,
                            &ompi_mpi_uint32_t,   &ompi_mpi_uint64_t,      &ompi_mpi_float,   &ompi_mpi_double,
                            &ompi_mpi_op_sum,     &ompi_mpi_op_min,        &ompi_mpi_op_max,  &ompi_mpi_op_prod};
#endif

template <typename Raw = Handle>
Raw ToHandle(uintptr_t number) {
  if constexpr (std::is_same_v<Raw, int>) {
    return static_cast<int>(number);
  } else {
    return reinterpret_cast<Raw>(number);
  }
}

Handle Known(MpiKnown which) {
  const auto at = static_cast<size_t>(which);
#ifdef FAKE_MPI_VARIABLES
  return kVariables[at];
#else
  return ToHandle(kMpiKnown[at].mpich);
#endif
}

// Handles of objects that the library makes: none of the known numbers.
constexpr uintptr_t kCommunicator = 0x70000000, kGroup = 0x71000000, kOp = 0x72000000;

bool IsMade(Handle handle, uintptr_t kind) {
  for (uintptr_t number = 0; number < 256; ++number) {
    if (handle == ToHandle(kind + number)) return true;
  }
  return false;
}

bool IsType(Handle handle) {
  for (auto at = static_cast<int>(MpiKnown::kUint8); at <= static_cast<int>(MpiKnown::kDouble); ++at) {
    if (handle == Known(static_cast<MpiKnown>(at))) return true;
  }
  return false;
}

bool IsOp(Handle handle) {
  for (auto at = static_cast<int>(MpiKnown::kSum); at <= static_cast<int>(MpiKnown::kProduct); ++at) {
    if (handle == Known(static_cast<MpiKnown>(at))) return true;
  }
  return IsMade(handle, kOp);
}

size_t SizeOf(Handle type) {
  if (type == Known(MpiKnown::kUint8) || type == Known(MpiKnown::kInt8)) return 1;
  if (type == Known(MpiKnown::kUint16) || type == Known(MpiKnown::kInt16)) return 2;
  const bool is_long =
      type == Known(MpiKnown::kInt64) || type == Known(MpiKnown::kUint64) || type == Known(MpiKnown::kDouble);
  return is_long ? 8 : 4;
}

// Every call of the running library begins here.
int Enter(const char* name) {
  if (!fake_mpi.initialized || fake_mpi.finalized) return kNotInitialized;
  while (fake_mpi.hanging == name && !fake_mpi.released) {
    fake_mpi.hangs = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fake_mpi.failing == name ? kOther : kSuccess;
}

int EnterCollective(const char* name, Handle communicator) {
  if (const int code = Enter(name)) return code;
  return IsMade(communicator, kCommunicator) ? kSuccess : kInvalidHandle;
}

// In a world of one every collective is a copy.
int Copy(const void* input, void* output, int count, Handle type) {
  if (!IsType(type)) return kInvalidHandle;
  const bool in_place = input == reinterpret_cast<const void*>(farandole::kMpiInPlace[static_cast<size_t>(kAbi)]);
  if (!in_place && count > 0) std::memcpy(output, input, static_cast<size_t>(count) * SizeOf(type));
  return kSuccess;
}

}  // namespace

MPI_CALL MPI_Get_library_version(char* text, int* size) {
  std::strcpy(text, fake_mpi.version.c_str());
  *size = static_cast<int>(fake_mpi.version.size());
  return kSuccess;
}

#if !defined(FAKE_MPI_VARIABLES)
MPI_CALL MPI_Abi_get_version(int* major, int* minor) {
  *major = *minor = fake_mpi.abi_version;
  return kSuccess;
}
#endif

MPI_CALL MPI_Initialized(int* flag) {
  *flag = fake_mpi.initialized ? 1 : 0;
  return kSuccess;
}

MPI_CALL MPI_Finalized(int* flag) {
  *flag = fake_mpi.finalized ? 1 : 0;
  return kSuccess;
}

MPI_CALL MPI_Init_thread(int*, char***, int /*wanted*/, int* provided) {
  if (fake_mpi.initialized) return kOther;
  fake_mpi.initialized = true;
  *provided = fake_mpi.level;
  return kSuccess;
}

MPI_CALL MPI_Query_thread(int* provided) {
  *provided = fake_mpi.level;
  return Enter("MPI_Query_thread");
}

MPI_CALL MPI_Finalize() {
  fake_mpi.finalized = true;
  return kSuccess;
}

MPI_CALL MPI_Error_string(int code, char* text, int* size) {
  std::strcpy(text, code == kOther ? "the fake was told to fail" : code == kInvalidHandle ? "no such handle" : "");
  *size = static_cast<int>(std::strlen(text));
  return kSuccess;
}

MPI_CALL MPI_Comm_rank(Handle communicator, int* rank) {
  *rank = fake_mpi.rank;
  return communicator == Known(MpiKnown::kCommWorld) ? Enter("MPI_Comm_rank") : kInvalidHandle;
}

MPI_CALL MPI_Comm_size(Handle communicator, int* size) {
  *size = fake_mpi.size;
  return communicator == Known(MpiKnown::kCommWorld) ? Enter("MPI_Comm_size") : kInvalidHandle;
}

MPI_CALL MPI_Comm_set_errhandler(Handle communicator, Handle handler) {
  return handler == Known(MpiKnown::kErrorsReturn) ? EnterCollective("MPI_Comm_set_errhandler", communicator)
                                                   : kInvalidHandle;
}

MPI_CALL MPI_Comm_group(Handle communicator, Handle* group) {
  *group = ToHandle(kGroup);
  return communicator == Known(MpiKnown::kCommWorld) ? Enter("MPI_Comm_group") : kInvalidHandle;
}

MPI_CALL MPI_Group_incl(Handle group, int, const int*, Handle* made) {
  *made = ToHandle(kGroup + 1);
  return IsMade(group, kGroup) ? Enter("MPI_Group_incl") : kInvalidHandle;
}

MPI_CALL MPI_Group_free(Handle* group) { return IsMade(*group, kGroup) ? Enter("MPI_Group_free") : kInvalidHandle; }

MPI_CALL MPI_Comm_create_group(Handle communicator, Handle group, int tag, Handle* made) {
  if (const int code = Enter("MPI_Comm_create_group")) return code;
  if (communicator != Known(MpiKnown::kCommWorld) || !IsMade(group, kGroup)) return kInvalidHandle;
  *made = ToHandle(kCommunicator + static_cast<uintptr_t>(tag));
  ++fake_mpi.communicators;
  return kSuccess;
}

MPI_CALL MPI_Comm_free(Handle* communicator) {
  --fake_mpi.communicators;
  return EnterCollective("MPI_Comm_free", *communicator);
}

MPI_CALL MPI_Op_create(void (*)(void*, void*, int*, void*), int, Handle* made) {
  *made = ToHandle(kOp + static_cast<uintptr_t>(fake_mpi.ops++));
  return Enter("MPI_Op_create");
}

MPI_CALL MPI_Bcast(void*, int, Handle type, int, Handle communicator) {
  return IsType(type) ? EnterCollective("MPI_Bcast", communicator) : kInvalidHandle;
}

MPI_CALL MPI_Allreduce(const void* input, void* output, int count, Handle type, Handle op, Handle communicator) {
  if (const int code = EnterCollective("MPI_Allreduce", communicator)) return code;
  return IsOp(op) ? Copy(input, output, count, type) : kInvalidHandle;
}

MPI_CALL MPI_Reduce(const void* input, void* output, int count, Handle type, Handle op, int, Handle communicator) {
  if (const int code = EnterCollective("MPI_Reduce", communicator)) return code;
  return IsOp(op) ? Copy(input, output, count, type) : kInvalidHandle;
}

MPI_CALL MPI_Reduce_scatter(const void* input, void* output, const int* counts, Handle type, Handle op,
                            Handle communicator) {
  if (const int code = EnterCollective("MPI_Reduce_scatter", communicator)) return code;
  return IsOp(op) ? Copy(input, output, counts[0], type) : kInvalidHandle;
}

MPI_CALL MPI_Allgatherv(const void* input, int count, Handle type, void* output, const int*, const int* offsets, Handle,
                        Handle communicator) {
  if (const int code = EnterCollective("MPI_Allgatherv", communicator)) return code;
  return Copy(input, static_cast<char*>(output) + offsets[0], count, type);
}

MPI_CALL MPI_Alltoallv(const void* input, const int* counts, const int*, Handle type, void* output, const int*,
                       const int*, Handle, Handle communicator) {
  if (const int code = EnterCollective("MPI_Alltoallv", communicator)) return code;
  return Copy(input, output, counts[0], type);
}

MPI_CALL MPI_Sendrecv(const void* input, int count, Handle type, int, int, void* output, int, Handle, int, int,
                      Handle communicator, void*) {
  if (const int code = EnterCollective("MPI_Sendrecv", communicator)) return code;
  return Copy(input, output, count, type);
}
