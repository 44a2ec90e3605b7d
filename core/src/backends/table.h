// The back ends of this build, and which of them performs what.
//
//   rows             one for each kind; its place is its number, and 0 is ours, which is always there
//   BackendList      the user's list: of those that support an operation, the first performs it
//   BackendTable     the back ends of one epoch: ours, and those of the list
//
// An operation is given its back end when it is submitted, since the short cuts of the negotiation are for number 0
// only. All ranks come to the same: it follows from what they agree upon and from settings that are equal everywhere.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"

namespace farandole {

// The rows, by number. Each is defined in its own folder, which includes this file. This file includes none of them, so
// a back end depends on nothing but what all back ends share. A signature carries the number, and all ranks have the
// same version, so a row may stand anywhere behind the first.
//
//   kNative   ours: shared memory inside a group, links between groups, all in host memory
//   kGloo     its own TCP connections, by a library that the user has built (core/gloo)
//   kMpi      an MPI library that is found at run time, started by its own launcher
//   kNccl     tensors on CUDA devices, as they lie there, with results there
#define FRD_BACKENDS(ROW) ROW(kNative) ROW(kGloo) ROW(kMpi) ROW(kNccl)

#define FRD_DECLARE(kind) extern const BackendKind kind;
FRD_BACKENDS(FRD_DECLARE)
#undef FRD_DECLARE

// How much of the shared segment ours wants for each member of a group, and among how many ranks it can perform an
// operation. Pure; any thread.
size_t NativeStagingBytesPerMember();
int NativeMostRanks(OpKind kind);

// Pure; any thread.
class BackendList {
 public:
  // kInvalid names what stands in the list and is no back end of this build, or stands there twice. without_network:
  // those whose library has none between groups.
  static Status Read(const std::vector<std::string>& names, BackendList* backend_list,
                     const std::set<std::string>& without_network = {});

  // The first back end's number, or -1 when none of the list supports everything that is asked.
  int Choose(const std::vector<PathFacts>& facts) const;
  // Nothing to choose: everything that ours does, it does.
  bool only_ours() const { return numbers_.size() == 1 && numbers_[0] == 0; }
  const std::vector<int>& numbers() const { return numbers_; }
  std::string ToString() const;  // "mpi,native"

 private:
  bool Supports(int number, PathFacts facts) const;

  std::vector<int> numbers_{0};
  std::set<int> without_network_;
};

// Owns the back ends of its epoch. Only the holder of the ProgressLock uses an object; the static functions are for any
// thread.
class BackendTable {
 public:
  BackendTable(World* world, const Settings& settings, const BackendList& backend_list);
  // All ranks at the same time; may block until `settings` says that the start has taken too long.
  Status Open();
  Backend* At(int number) const;  // null where it is not in the list
  void Forget(int set_id);
  // Destroys all back ends, which may wait some seconds for their libraries and the other ranks. At gives null from
  // then on. REQUIRES: no task is under way.
  void Close();

  // Of the rows, by number.
  static std::vector<std::string> Names();
  static bool TakesDeviceMemory(int number);
  static bool Supports(int number, const PathFacts& facts);
  static bool AnyTakesDeviceMemory(const BackendList& backend_list);
  // Which library it would use, "" where it needs none; else what is missing.
  static Status Find(int number, const Settings& settings, std::string* library);
  // Ok when all of the list that need a library find one.
  static Status FindAll(const Settings& settings, const BackendList& backend_list);
  // For each back end of the list that needs a library: ("library of <name>", which one it is or that there is none).
  static std::vector<std::pair<std::string, std::string>> Libraries(const Settings& settings,
                                                                    const BackendList& backend_list);
  // What all ranks say, by rank, through the library of the launcher that started them; before there is a world.
  static Status Exchange(const Settings& settings, int rank, int size, const std::string& mine,
                         std::vector<std::string>* all);

 private:
  std::vector<std::unique_ptr<Backend>> backends_;  // by number
};

}  // namespace farandole
