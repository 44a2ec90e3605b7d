// The host copies of all operations under way on this rank: when each begins, who is told when it has ended.
//
//   Await (log order) -> copies in, ahead of the work as far as memory allows -> Prepare (the work's turn)
//     -> the collective -> Return -> copies out -> Poll says which operations are complete
//
// An operation with a done function is complete when its copy out is under way, and its event says when the results may
// be read; others, and those that ask for it, are complete when the results are there. The driver alone calls.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "device/waker.h"
#include "engine/batch.h"
#include "engine/host_copy.h"

namespace farandole {

class HostCopies {
 public:
  // What may be held for operations whose turn has not come: enough to keep a device copying beside the collectives.
  static constexpr size_t kAheadBytes = size_t{256} << 20;

  // wake_event: see Waker.
  explicit HostCopies(int wake_event = -1, size_t ahead_bytes = kAheadBytes);
  ~HostCopies();  // drops and drains

  // The operation's turn comes; its host copy may be null, and then nothing is done here.
  void Await(const OperationPtr& operation);
  // *ready: the inputs are here and the work's segments point at them. An error is the device's.
  Status Prepare(PlannedTask* planned, bool* ready);
  // The collective is done. *complete: so is the operation, with the status returned; else Poll will say so.
  Status Return(const OperationPtr& operation, bool* complete);

  struct Completed {
    OperationPtr operation;
    Status status;
  };
  // Begins copies, notices those that have ended. True when something was done.
  bool Poll(std::vector<Completed>* completed);

  // See PinnedPool.
  void FreeSurplus();

  // The collectives of what was awaited and not returned will not come. Memory is kept until the device has left it.
  void Drop();
  // After Drop: the device still uses tensors of an operation that is over only when it does not (done_when_readable).
  bool SomebodyCannotWait() const;
  // Polls until nothing returns any more, or for a few seconds: a device that takes longer is broken.
  void Drain(std::vector<Completed>* completed);

  // All of it for a world of one rank, in the calling thread, which waits for the device. `perform` works on a request
  // whose tensors are the host's.
  Status RunAlone(const OperationPtr& operation, const std::function<Status(const Request&)>& perform);

  bool busy() const { return !waiting_.empty() || !begun_.empty() || !leaving_.empty(); }

 private:
  struct Leaving {
    OperationPtr operation;
    bool completes;  // else it is complete, only its memory is still in use
  };

  Status Begin(const OperationPtr& operation);
  bool BeginAhead();
  bool EndLeaving(std::vector<Completed>* completed);
  void Release(Operation* operation);
  Status TryAlone(const OperationPtr& operation, const std::function<Status(const Request&)>& perform);
  Status LaneOf(Device* device, CopyLane** lane);

  const size_t ahead_bytes_;
  std::map<Device*, std::unique_ptr<CopyLane>> lanes_;
  const Waker waker_;

  std::deque<OperationPtr> waiting_;  // in the order of the log
  std::vector<OperationPtr> begun_;
  std::deque<Leaving> leaving_;
  size_t held_bytes_ = 0;  // of begun_ and leaving_
  bool short_of_memory_ = false;
};

}  // namespace farandole
