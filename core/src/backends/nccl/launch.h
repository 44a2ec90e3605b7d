// A task as NCCL's calls in a stream of a device. Fused tensors are one group of calls: nothing is packed. Collectives
// along the first dimension are one call where all ranks have equally many rows, else one for each rank.
//
// The NCCL backend owns one DeviceStream for each device. Only the holder of the ProgressLock uses what is here; the
// thread of the communicator makes the calls.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backends/nccl/communicators.h"
#include "collectives/task.h"
#include "device/device.h"

namespace farandole {

// A stream of a device, an event behind the last task, and memory that stands in for that of ranks that have joined.
class DeviceStream {
 public:
  explicit DeviceStream(Device* device) : device_(device) {}
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  Status Open();

  // Takes at least size_bytes and zeroes them in the stream. REQUIRES: the task before is over.
  Status TakeZeros(size_t size_bytes, std::byte** zeros);
  // Records the event after all work that the stream has now.
  Status Mark() { return device_->Record(event_, stream_); }
  Status HasPassed(bool* passed) { return device_->HasHappened(event_, passed); }
  // The device has not ended its work, so nothing that it may still use is freed.
  void Leave() { is_left_ = true; }

  Device* device() const { return device_; }
  Stream stream() const { return stream_; }

 private:
  Device* const device_;
  Stream stream_ = nullptr;
  Event event_ = nullptr;
  // Memory that has become too small is kept, too: freeing it waits for the device, which may wait for another rank,
  // and that for this one. The last is the largest.
  std::vector<void*> zeros_;
  size_t zeros_bytes_ = 0;
  bool is_left_ = false;
};

// Starts the task in this stream, after every tensor's ready event. *scaled_sum: where the communicator's thread puts
// the reduction that it makes for the task, null for none; it is destroyed once the communicator is ready again.
// REQUIRES: the communicator is ready, and has several ranks where a sum is scaled (NcclSupports); what was launched
// before has ended.
Status LaunchTask(const NcclLibrary& nccl, const Task& task, Communicator* communicator, DeviceStream* stream,
                  std::shared_ptr<NcclReduce>* scaled_sum);

}  // namespace farandole
