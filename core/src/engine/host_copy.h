// Pinned host memory in which the tensors of one operation stand in while a back end that works on host memory performs
// it. Made for operations whose tensors lie on a device; others have none.
//
//   kWaiting --CopyIn--> kComing --its event--> kHere --CopyOut--> kReturning --its event--> kOver
//
//   device tensor --(after its ready event)--> block --the collective, in place--> block --> device tensor
//
// The driver alone calls; whoever drops the operation last destroys it.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "device/pinned_pool.h"
#include "engine/operation.h"

namespace farandole {

// One device with what is used of it: a stream in each direction, since devices copy both ways at once.
struct CopyLane {
  explicit CopyLane(Device* of) : device(of), pool(of) {}
  ~CopyLane();
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;
  Status Open();

  Device* const device;
  PinnedPool pool;
  Stream in = nullptr;
  Stream out = nullptr;
};

class HostCopy {
 public:
  enum class State { kWaiting, kComing, kHere, kReturning, kOver };

  HostCopy(Device* device, const Request& request, int rank);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // Takes memory and tells the device to copy the inputs there, each after its ready event. When it fails in kWaiting
  // nothing has begun and it may be tried again; else it stays kComing and says the same error again.
  Status CopyIn(CopyLane* lane);
  // Tells the device to copy the results back; at once kOver when there are none. REQUIRES: kHere.
  Status CopyOut();
  // Moves on when the device has. An error of the device is said again at each call.
  Status Poll();
  // Gives the block back, which is otherwise left to the device for good. REQUIRES: kHere or kOver.
  void ReleaseMemory();

  State state() const { return state_; }
  Device* device() const { return device_; }
  size_t size_bytes() const { return size_bytes_; }
  Stream in() const { return lane_->in; }
  Stream out() const { return lane_->out; }
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
  CopyLane* lane_ = nullptr;
  Block block_;
  Event event_ = nullptr;
  bool returns_ = false;  // CopyOut had something to copy
  Status failed_;
};

// *copy stays null when the tensors are the host's, or empty. kInvalid as FindDeviceOf (on_device.h).
Status MakeHostCopy(const Devices& devices, const Request& request, int rank, std::shared_ptr<HostCopy>* copy);

}  // namespace farandole
