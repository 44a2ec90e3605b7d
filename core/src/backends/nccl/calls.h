// NCCL's calls for one task: a list of them, made as one group, with the reduction that is made for them.
//
//   CallList     calls with all that they use
//   Calls        starts a list as one group, and makes and destroys the task's reduction
//   Launch       a whole task among all its ranks
//
// Only the holder of the ProgressLock uses Calls and Launch. The thread of the communicator makes a list.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backends/nccl/communicators.h"
#include "backends/nccl/stream.h"

namespace farandole {

// A task's reduction. It may be made by a call before the group, so it is read when the group is called.
using NcclReduction = std::shared_ptr<NcclReduce>;

// Calls that are made later, in another thread. They may outlast the task, so they hold all that they use.
class CallList {
 public:
  template <typename Signature, typename... Arguments>
  void Add(const NcclFunction<Signature>& function, Arguments... arguments) {
    calls_.push_back(
        {function.name, [pointer = function.pointer, arguments...] { return pointer(Read(arguments)...); }});
  }
  // Makes them until one fails. REQUIRES: within Communicator::Make.
  Status Make(Communicator* communicator) const;

 private:
  struct Entry {
    const char* name;
    std::function<int()> call;
  };

  template <typename Argument>
  static Argument Read(Argument argument) {
    return argument;
  }
  static NcclReduce Read(const NcclReduction& reduction) { return *reduction; }

  std::vector<Entry> calls_;
};

class Calls {
 public:
  explicit Calls(const NcclLibrary& nccl) : nccl_(nccl) {}

  // `list` adds the calls, with the task's reduction and these factors. REQUIRES: the communicator is ready, and has
  // several ranks where there are factors (NcclSupports); what was begun before has ended.
  void Begin(const Task& task, const Scale& scale, Communicator* communicator,
             const std::function<void(const NcclReduction&, CallList*)>& list);
  // The same for calls that reduce nothing.
  void Begin(Communicator* communicator, const std::function<void(CallList*)>& list);
  // REQUIRES: the device has performed the calls, and the communicator is ready. It must be ready again before the next
  // calls.
  void End();

 private:
  void Begin(Communicator* communicator, CallThread::Call first, const std::function<void(CallList*)>& list);

  const NcclLibrary& nccl_;
  Communicator* communicator_ = nullptr;
  NcclReduction scaled_sum_;  // made for this task; null: none
};

// One task as calls of NCCL among all its ranks, a group of them where tensors are fused: nothing is packed.
// Collectives along the first dimension are one call where all ranks have equally many rows, else one for each rank.
class Launch {
 public:
  explicit Launch(const NcclLibrary& nccl) : nccl_(nccl), calls_(nccl) {}

  // Starts the task in this stream, after every tensor's ready event. REQUIRES: the communicator is ready; what was
  // launched before has ended.
  Status Begin(const Task& task, Communicator* communicator, DeviceStream* stream);
  // REQUIRES: the device has performed it, and the communicator is ready. It must be ready again before the next task.
  void End() { calls_.End(); }

 private:
  Status TakeMemory(const Task& task);
  void ListEach(const Task& task, const NcclReduction& reduction, CallList* calls) const;
  void ListRows(const Task& task, const NcclReduction& reduction, CallList* calls) const;

  const NcclLibrary& nccl_;
  Calls calls_;
  Communicator* communicator_ = nullptr;
  DeviceStream* stream_ = nullptr;
  std::vector<IoBuffer> tensors_;
};

}  // namespace farandole
