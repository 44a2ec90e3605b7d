// The backends of this build, and which of them performs what.
//
//   rows             one for each kind; its place is its number, and 0 is native, which is always there
//   BackendList      the user's list: of those that support an operation, the first performs it
//   BackendTable     the backends of one epoch: native, and those of the list
//
// An operation gets its backend when it is submitted, since the short cuts of the negotiation are for number 0 only.
// All ranks choose the same: the choice follows from what they agree upon and from settings that are equal on all
// ranks.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"

namespace farandole {

// The rows, by number. Each is defined in its own folder, which includes this file. This file includes none of them, so
// a backend depends only on what all backends share. A signature carries the number, and all ranks have the same
// version, so a row may stand anywhere behind the first.
//
//   kNative   this library: shared memory inside a node, links between nodes, all in host memory
//   kGloo     its own TCP connections, by a library that the user has built (core/gloo)
//   kMpi      an MPI library that is found at run time, started by its own launcher
//   kNccl     tensors on CUDA devices, without copies to the host
extern const BackendKind kNative, kGloo, kMpi, kNccl;

// How much of the shared segment the native backend needs for each member of a node, and among how many ranks it can
// perform an operation. Pure; any thread.
size_t NativeStagingBytesPerMember();
int NativeMaxRanks(OpKind kind);

// Pure; any thread.
class BackendList {
 public:
  // kInvalid names an entry that is no backend of this build, or that occurs twice. without_network: the backends whose
  // library has no network between nodes, so they perform nothing there.
  static Status Read(const std::vector<std::string>& names, BackendList* backend_list,
                     const std::set<std::string>& without_network = {});

  // The first backend's number, or -1 when none of the list supports everything that is asked.
  int Choose(const std::vector<OperationFacts>& facts) const;
  // True when native is the only backend, so there is nothing to choose.
  bool only_ours() const { return numbers_.size() == 1 && numbers_[0] == 0; }
  const std::vector<int>& numbers() const { return numbers_; }
  std::string ToString() const;  // "mpi,native"

 private:
  bool Supports(int number, OperationFacts facts) const;

  std::vector<int> numbers_{0};
  std::set<int> without_network_;
};

// Owns the backends of its epoch. Only the holder of the ProgressLock uses an object; the static functions are for any
// thread.
class BackendTable {
 public:
  BackendTable(World* world, const Settings& settings, const BackendList& backend_list);
  // All ranks call it at the same time. It may block until the start timeout in `settings`.
  Status Open();
  Backend* At(int number) const;  // null where it is not in the list
  void Forget(int set_id);
  // Destroys all backends, which may wait some seconds for their libraries and the other ranks. At gives null from
  // then on. REQUIRES: no task is under way.
  void Close();

  // These ask the rows, by number.
  static std::vector<std::string> Names();
  static bool TakesDeviceMemory(int number);
  static bool Supports(int number, const OperationFacts& facts);
  static bool AnyTakesDeviceMemory(const BackendList& backend_list);
  // Names the library that it would use, "" where it needs none; an error says what is missing.
  static Status Find(int number, const Settings& settings, std::string* library);
  // Ok when all of the list that need a library find one.
  static Status FindAll(const Settings& settings, const BackendList& backend_list);
  // Returns, for each backend of the list that needs a library, ("library of <name>", its name or "none").
  static std::vector<std::pair<std::string, std::string>> Libraries(const Settings& settings,
                                                                    const BackendList& backend_list);
  // Gathers `mine` of all ranks, by rank, through the library of the launcher that started them, before there is a
  // world.
  static Status Exchange(const Settings& settings, int rank, int size, const std::string& mine,
                         std::vector<std::string>* all);

 private:
  std::vector<std::unique_ptr<Backend>> backends_;  // by number
};

}  // namespace farandole
