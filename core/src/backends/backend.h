// A backend performs collectives among the ranks of a process set.
//
// The engine hands over one task after another, in the same order on every rank, and polls until each is done. Only
// Open and the destructor block: Poll moves what can be moved and returns. The engine owns the backends of its epoch
// (table.h); only the holder of the ProgressLock calls them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/plan.h"
#include "collectives/task.h"
#include "common/config.h"
#include "common/status.h"
#include "common/types.h"
#include "world/world.h"

namespace farandole {

// Libraries of collectives know these five, and neither join nor barrier; a kind that is added later has an empty slot.
// They reduce element by element, so reductions of whole tensors (Adasum) stay with the native backend. Pure; any
// thread.
inline bool LibrariesPerform(const OperationFacts& facts) {
  constexpr auto kPerformed = ByNumber<kOpKindCount, bool>(false, {{OpKind::kAllreduce, true},
                                                                   {OpKind::kAllgather, true},
                                                                   {OpKind::kBroadcast, true},
                                                                   {OpKind::kAlltoall, true},
                                                                   {OpKind::kReducescatter, true}});
  if (!kPerformed[static_cast<size_t>(facts.kind)]) return false;
  return !Reduces(facts.kind) || (Supports(facts.dtype, facts.reduce) && !NeedsWholeTensors(facts.reduce));
}

// The path that the user gives for the library of this backend, or "". Pure; any thread.
inline std::string PathOfLibrary(const Settings& settings, const char* backend) {
  const auto given = settings.libraries.find(backend);
  return given != settings.libraries.end() ? given->second : "";
}

class Backend {
 public:
  virtual ~Backend() = default;
  // All ranks call it once, before any task; it may block, like the start of the world. Where there is no library,
  // returns what `find` of its kind returns.
  virtual Status Open() { return Status::Ok(); }
  // REQUIRES: its kind supports the task, and the task before is done. `task` stays valid until it is done or aborted.
  virtual Status Start(const Task* task) = 0;
  // *moved: something happened. *done: the outputs are complete and the inputs no longer needed.
  virtual Status Poll(bool* moved, bool* done) = 0;
  // How long the progress loop may sleep before it calls Poll again: 0 is not at all, -1 is until something wakes it.
  virtual int LongestSleepMs() const { return -1; }
  // Returns the ranks that the current task waits for, as far as this rank can tell; for reports.
  virtual std::vector<int> WaitingOn() const = 0;
  // Where no rank can be named: says what the current task waits for, and what to look at, "a library, which ...,".
  virtual std::string StallReason() const { return ""; }
  // Drops the current task, and does not touch its memory after it has returned. Posts of the transport may do so until
  // that is quiet.
  virtual void Abort() = 0;
  // Drops what was kept for a removed set. REQUIRES: no task of it is under way.
  virtual void Forget(int set_id) = 0;
};

// A row of the table (table.h): what is known of a backend before one is made.
struct BackendKind {
  const char* name;
  // Pure: every rank must get the same result.
  bool (*supports)(const OperationFacts& facts);
  // True when it takes tensors as they lie on the device; else the engine copies them to host memory. True only where
  // supports() accepts on_device.
  bool takes_device_memory;
  // Looks for the library that it needs, and names it, "Name 1.2.3": all ranks must find the same. Returns an error
  // where none can be used; the message says what was tried and what to install. Starts nothing.
  Status (*find)(const Settings& settings, std::string* library);
  // `host_backend` performs host collectives, whatever the user's list. Through it ranks exchange what they need before
  // their library has connected, in the order of the log.
  std::unique_ptr<Backend> (*make)(World* world, const Settings& settings, Backend* host_backend);
  // An allgather by a library whose own launcher started the ranks, before there is a world: (settings, rank, size, own
  // bytes, those of all ranks). It blocks until all have called it. Null where the library cannot do that.
  Status (*exchange)(const Settings& settings, int rank, int size, const std::string& mine,
                     std::vector<std::string>* all) = nullptr;
};

}  // namespace farandole
