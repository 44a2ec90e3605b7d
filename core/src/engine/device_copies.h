// Operations whose tensors lie on a device: which device that is, and the host memory in which the tensors stand while
// a back end performs them that works on host memory.
//
//   FindDeviceOf, MarkReady   what a submitting thread asks; any thread
//   CopyStreams               one device's streams and pinned memory, for as long as the world lasts
//   HostCopy                  the memory of one operation
//   HostCopies                when each begins, and who is told when it has ended
//
// WorkQueue owns the HostCopies of a world of several ranks, and calls them with the ProgressLock. In a world of one
// the engine owns them, under a mutex of its own.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "device/block_pools.h"
#include "device/device.h"
#include "engine/batch.h"
#include "engine/operation.h"

namespace farandole {

// *device is null when the tensors are the host's, or empty. kInvalid when they are not all on one device, or the
// device cannot be used.
Status FindDeviceOf(const Devices& devices, const Request& request, Device** device);

// Of a request that is ready after all that its device was asked for: gives its tensors the event that says so, which
// lives as long as the request. May wait for the device, see Device::MarkAll. Errors as FindDeviceOf.
Status MarkReady(const Devices& devices, Request* request);

// One device with what is used of it: a stream in each direction, since devices copy both ways at once.
struct CopyStreams {
  explicit CopyStreams(Device* of) : device(of), pool(of) {}
  ~CopyStreams();
  CopyStreams(const CopyStreams&) = delete;
  CopyStreams& operator=(const CopyStreams&) = delete;
  Status Open();

  Device* const device;
  PinnedPool pool;
  Stream in = nullptr;
  Stream out = nullptr;
};

// Pinned host memory in which the tensors of one operation stand while a back end that works on host memory performs
// it. Only operations whose tensors lie on a device have one; whoever drops the operation last destroys it.
//
//   kWaiting --CopyIn--> kComing --its event--> kHere --CopyOut--> kReturning --its event--> kOver
//
//   device tensor --(after its ready event)--> block --the collective, in place--> block --> device tensor
class HostCopy {
 public:
  enum class State { kWaiting, kComing, kHere, kReturning, kOver };

  HostCopy(Device* device, const Request& request, int rank);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // Takes memory and tells the device to copy the inputs there, each after its ready event. When it fails in kWaiting
  // nothing has begun and it may be tried again; else it stays kComing and says the same error again.
  Status CopyIn(CopyStreams* streams);
  // Tells the device to copy the results back; at once kOver when there are none. REQUIRES: kHere.
  Status CopyOut();
  // Moves on when the device has. An error of the device is said again at each call.
  Status Poll();
  // Gives the block back, which is otherwise left to the device for good. REQUIRES: kHere or kOver.
  void ReleaseMemory();

  State state() const { return state_; }
  Device* device() const { return device_; }
  size_t size_bytes() const { return size_bytes_; }
  Stream in() const { return streams_->in; }
  Stream out() const { return streams_->out; }
  // Where tensor `index` stands in. REQUIRES: CopyIn went well.
  std::byte* at(size_t index) const { return block_.memory + offsets_[index]; }
  // Once it has happened the device does not use the tensors any more. Null: it does not now.
  Event event() const { return state_ == State::kComing || returns_ ? event_ : nullptr; }

 private:
  Status EnqueueCopyIn();
  Status EnqueueCopyOut();
  Status Keep(Status status);
  bool Reads() const;
  bool Writes(const Tensor& tensor) const;

  Device* const device_;
  const Request& request_;
  const bool is_root_;
  std::vector<size_t> offsets_;
  size_t size_bytes_ = 0;

  State state_ = State::kWaiting;
  CopyStreams* streams_ = nullptr;
  Block block_;
  Event event_ = nullptr;
  bool returns_ = false;  // CopyOut had something to copy
  Status failed_;
};

// *copy stays null when the tensors are the host's, or empty. kInvalid as FindDeviceOf.
Status MakeHostCopy(const Devices& devices, const Request& request, int rank, std::shared_ptr<HostCopy>* copy);

// The host copies of all operations under way on this rank.
//
//   Await (log order) -> copies in, ahead of the task as far as memory allows -> Prepare (the task's turn)
//     -> the collective -> Return -> copies out -> Poll says which operations are complete
//
// An operation with a done function is complete when its copy out is under way, and its event says when the results may
// be read. Others, and those that ask for it, are complete when the results are there.
class HostCopies {
 public:
  // What may be held for operations whose turn has not come: enough to keep a device copying beside the collectives.
  static constexpr size_t kAheadBytes = size_t{256} << 20;

  // wake_event: see Waker.
  explicit HostCopies(int wake_event = -1, size_t ahead_bytes = kAheadBytes);
  ~HostCopies();  // drops and drains

  // The operation's turn comes; its host copy may be null, and then nothing is done here.
  void Await(const OperationPtr& operation);
  // *ready: the inputs are here and the task's buffers point at them. An error is the device's.
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
  Status StreamsOf(Device* device, CopyStreams** streams);

  const size_t ahead_bytes_;
  std::map<Device*, std::unique_ptr<CopyStreams>> streams_;
  const Waker waker_;

  std::deque<OperationPtr> waiting_;  // in the order of the log
  std::vector<OperationPtr> begun_;
  std::deque<Leaving> leaving_;
  size_t held_bytes_ = 0;  // of begun_ and leaving_
  bool short_of_memory_ = false;
};

}  // namespace farandole
