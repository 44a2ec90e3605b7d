// NCCL's calls for one work, as one group, with the reduction that is made for them. The driver alone calls.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/nccl/communicator.h"

namespace farandole {

// A work's reduction: it may be made by a call before the group, so it is read when the group is called.
using NcclReduction = std::shared_ptr<NcclReduce>;

// Calls with all that they use, to be made later and perhaps in another thread, which may outlast the work.
class CallList {
 public:
  template <typename Signature, typename... Arguments>
  void Add(const NcclFunction<Signature>& function, Arguments... arguments) {
    calls_.push_back(
        {function.name, [pointer = function.pointer, arguments...] { return pointer(Read(arguments)...); }});
  }
  // As far as they do not fail. REQUIRES: within Communicator::Make.
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

  // `list` says which calls, with the work's reduction and these factors. REQUIRES: the communicator is ready, and of
  // several ranks where there are factors (meaning.h); what was begun before has ended.
  Status Begin(const Task& task, const Scale& scale, Communicator* communicator,
               const std::function<void(const NcclReduction&, CallList*)>& list);
  // The same for calls that reduce nothing.
  Status Begin(Communicator* communicator, const std::function<void(CallList*)>& list);
  // The device is past them, and the communicator is ready, as it is to be again before the next calls.
  Status End();

 private:
  Status Begin(Communicator* communicator, Caller::Calls first, const std::function<void(CallList*)>& list);

  const NcclLibrary& nccl_;
  Communicator* communicator_ = nullptr;
  NcclReduction scaled_sum_;  // made for this work; null: none
};

}  // namespace farandole
