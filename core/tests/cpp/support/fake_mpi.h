// An MPI library with a world of one process, for tests, in the binary interfaces that libraries have:
// libfake_mpi_mpich.so, libfake_mpi_openmpi.so. Handles of another interface are answered with
// an error, as are calls that come before MPI_Init_thread. Tests reach it by its variable `fake_mpi`.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/beside.h"

namespace farandole {

struct FakeMpi {
  std::string version;
  int abi_version = -1;  // the answer of MPI_Abi_get_version
  int rank = 0;          // the answer of MPI_Comm_rank
  int size = 1;          // the answer of MPI_Comm_size; the other ranks do not exist
  int level = 0;         // the thread level that it supports
  bool initialized = false;
  bool finalized = false;
  std::string failing;                // this call fails
  std::string hanging;                // this call hangs while its name stands here
  std::atomic<bool> hangs{false};     // a thread is in the hanging call
  std::atomic<bool> released{false};  // lets the hanging call return
  int communicators = 0;              // made and not freed
  int ops = 0;                        // made
};

inline std::string FakeMpiPath(const std::string& interface) {
  return PathBesideTests("libfake_mpi_" + interface + ".so");
}

inline FakeMpi& OpenFakeMpi(const std::string& interface) {
  void* const library = dlopen(FakeMpiPath(interface).c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* const fake = library != nullptr ? static_cast<FakeMpi*>(dlsym(library, "fake_mpi")) : nullptr;
  if (fake == nullptr) {
    std::fprintf(stderr, "no fake MPI: %s\n", dlerror());
    std::abort();
  }
  return *fake;
}

}  // namespace farandole
