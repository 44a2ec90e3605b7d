// Operations whose tensors lie on a device: which device that is, and the host memory that holds the tensors while a
// backend performs them that works on host memory.
//
//   FindDeviceOf, MarkReady   for submitting threads; any thread
//   CopyStreams               one device's streams and pinned memory, for as long as the world lasts
//   HostCopy                  the memory of one operation
//   HostCopies                when each copy begins, and which operations are complete
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
#include "operation/batch.h"
#include "operation/operation.h"

namespace farandole {

// Sets *device to null when the tensors are in host memory, or empty. kInvalid when they are not all on one device, or
// the device cannot be used.
Status FindDeviceOf(const Devices& devices, const Request& request, Device** device);

// For a request whose tensors are ready after all work that the process has asked of their device: gives its tensors an
// event behind that work, which lives as long as the request. May wait for the device, see Device::MarkAll. Errors as
// FindDeviceOf.
Status MarkReady(const Devices& devices, Request* request);

// A device's pinned memory and a stream in each direction, since devices copy both ways at once.
struct CopyStreams {
  explicit CopyStreams(Device* of) : device(of), pool(of) {}
  ~CopyStreams();
  CopyStreams(const CopyStreams&) = delete;
  CopyStreams& operator=(const CopyStreams&) = delete;
  // No-op where they are open. After an error it may be tried again.
  Status Open();

  Device* const device;
  PinnedPool pool;
  Stream in = nullptr;
  Stream out = nullptr;
};

// Pinned host memory for the tensors of one operation, while a backend that works on host memory performs it. Only
// operations whose tensors lie on a device have one. It is destroyed with the operation.
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

  // Takes memory and enqueues the copies of the inputs, each after its ready event. If it fails in kWaiting, nothing
  // has begun and it may be tried again; else it stays kComing and returns the same error again.
  Status CopyIn(CopyStreams* streams);
  // Enqueues the copies of the results to the device; at once kOver when there are none. REQUIRES: kHere.
  Status CopyOut();
  // Changes the state when the device has copied. Each call returns an error of the device again.
  Status Poll();
  // Gives the block back, which is otherwise left to the device for good. REQUIRES: kHere or kOver.
  void ReleaseMemory();

  State state() const { return state_; }
  Device* device() const { return device_; }
  size_t size_bytes() const { return size_bytes_; }
  Stream in() const { return streams_->in; }
  Stream out() const { return streams_->out; }
  // Returns the host memory of tensor `index`. REQUIRES: CopyIn went well.
  std::byte* at(size_t index) const { return block_.memory + offsets_[index]; }
  // Returns the event after which the device does not use the tensors any more; null if it does not use them now.
  Event event() const { return state_ == State::kComing || returns_ ? event_ : nullptr; }

 private:
  Status EnqueueCopyIn();
  Status EnqueueCopyOut();
  void PrescaleOnHost();
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

// Leaves *copy null when the tensors are in host memory, or empty. kInvalid as FindDeviceOf.
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
  // How much memory operations may hold before their turn: enough to keep a device copying beside the collectives.
  static constexpr size_t kAheadBytes = size_t{256} << 20;

  // wake_event: see Waker.
  explicit HostCopies(int wake_event = -1, size_t ahead_bytes = kAheadBytes);
  ~HostCopies();  // drops and drains

  // Adds an operation whose turn comes later. No-op if its host copy is null.
  void Await(const OperationPtr& operation);
  // Sets *ready when the inputs are on the host and the task's buffers point at them. An error is the device's.
  Status Prepare(PlannedTask* planned, bool* ready);
  // Call it when the collective is done. *complete: the operation is, too, with the returned status; else Poll will
  // report it.
  Status Return(const OperationPtr& operation, bool* complete);

  struct Completed {
    OperationPtr operation;
    Status status;
  };
  // Begins copies, and notices those that have ended. Returns whether it did anything.
  bool Poll(std::vector<Completed>* completed);

  // See PinnedPool.
  void FreeSurplus();

  // Gives up operations whose collective is not done. Memory is kept until the device has stopped using it. Returns
  // true when the device still uses tensors of an operation that may only be over once it does not
  // (done_when_readable).
  bool Drop();
  // Polls until no copy is under way, or for a few seconds: a device that takes longer is broken.
  void Drain(std::vector<Completed>* completed);

  // Does all of it for a set of one rank in the calling thread, which waits for the device. `perform` works on the host
  // copy.
  Status RunAlone(const OperationPtr& operation, const std::function<Status()>& perform);

  bool busy() const { return !waiting_.empty() || !begun_.empty() || !leaving_.empty(); }

 private:
  struct Leaving {
    OperationPtr operation;
    bool completes;  // else the operation is complete, and only its memory is still in use
  };

  Status Begin(const OperationPtr& operation);
  bool BeginAhead();
  bool EndLeaving(std::vector<Completed>* completed);
  void Release(Operation* operation);
  Status TryAlone(const OperationPtr& operation, const std::function<Status()>& perform);

  const size_t ahead_bytes_;
  std::map<Device*, CopyStreams> streams_;
  const Waker waker_;

  std::deque<OperationPtr> waiting_;  // in the order of the log
  std::vector<OperationPtr> begun_;
  std::deque<Leaving> leaving_;
  size_t held_bytes_ = 0;  // of begun_ and leaving_
  bool short_of_memory_ = false;
};

}  // namespace farandole
