// One submitted collective, from submission to completion.
//
// A Request is what a plugin asks for; an Operation is what the engine makes of it and what a handle points at. The
// submitting thread fills it, the driver completes it exactly once; after `done` is seen, its results may be read by
// any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/types.h"
#include "controller/agreement.h"
#include "device/device.h"
#include "device/result_pool.h"
#include "engine/nvtx.h"
#include "engine/recording.h"

namespace farandole {

struct Tensor {
  const void* input = nullptr;
  void* output = nullptr;  // may equal input; null where the core allocates the result (AllocatesOutput)
  DType dtype = DType::kFloat32;
  Shape shape;
  int32_t device = 0;           // DeviceKind
  Event ready_event = nullptr;  // after it the input is valid and the output may be written; see Ready

  size_t size_bytes() const { return static_cast<size_t>(ElementCount(shape)) * SizeOf(dtype); }
};

// When tensors on a device may be used: each after its ready event, or all after what the process has asked of their
// device until it submits them.
enum class Ready : int32_t { kByEvent = 0, kAfterAll = 1 };
inline constexpr int kReadyCount = 2;

// Called exactly once, by whichever thread completes the operation, without a lock of ours held. It may submit; it must
// not block. Once `event` has happened the device does not use the tensors any more.
using DoneFunction = void (*)(void* argument, const Status& status, Event event);

struct Request {
  OpKind kind = OpKind::kAllreduce;
  std::vector<Tensor> tensors;  // several: a grouped call, completed together
  std::string name;             // empty: matched with the other ranks' unnamed operations by order
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;  // a rank of the world, in the set
  double prescale = 1.0;
  double postscale = 1.0;
  int process_set = 0;
  bool results_on_device = false;  // AllocatesOutput: where the inputs lie, if their back end can; else on the host
  std::vector<int64_t> splits;     // alltoall: rows of each tensor for each position; empty: equal parts
  std::vector<int64_t> ranks;      // add_process_set: its ranks; remove_process_set: its id
  std::string site;                // where the user's script called, for messages; may be empty
  Ready ready = Ready::kByEvent;
  std::shared_ptr<void> mark;  // of Ready::kAfterAll: the event, by MarkReady
  DoneFunction done = nullptr;
  void* done_argument = nullptr;
  bool done_when_readable = false;  // `done` has no event to wait for, and comes later

  bool EndsWhenReadable() const { return done == nullptr || done_when_readable; }
};

// Memory that the core has allocated for a result.
struct Output {
  std::shared_ptr<std::byte> memory;
  Device* device = nullptr;  // whose memory it is; null: the host's
  DType dtype = DType::kFloat32;
  Shape shape;
  size_t size_bytes = 0;
};

class HostCopy;

class Operation final : public Proposal {
 public:
  explicit Operation(Request asked) : request(std::move(asked)), name_(request.name) {}

  // As the agreement sees it.
  int set() const override { return request.process_set; }
  const std::string& name() const override { return name_; }
  int64_t turn() const override { return turn_; }
  const std::string& site() const override { return request.site; }
  std::vector<int64_t> Extents() const override;
  bool Means(const Signature& signature) const override;
  Description Describe() const override;

  bool named() const { return turn_ < 0; }
  void SetName(std::string name, int64_t turn) {  // of one that the user did not name; before it is submitted
    name_ = std::move(name);
    turn_ = turn;
  }
  std::string Title() const;  // "allreduce 'grad.w'" or "unnamed allreduce number 7"

  const Request request;
  // Where AllocatesOutput: one per tensor; alltoall: then, per tensor, the rows that came from each position. join: the
  // rank that was last; add_process_set: the id.
  std::vector<Output> outputs;
  Device* device = nullptr;             // where the tensors lie, when their back end takes them there; else null
  std::shared_ptr<ResultPool> results;  // of `device`, where AllocatesOutput
  std::shared_ptr<HostCopy> host_copy;  // null when the tensors are the host's, or their back end takes the device's
  Event event = nullptr;                // of host_copy; when done: what DoneFunction says
  int backend = 0;                      // who performs it (backends/registry.h)
  Agreement::Plan plan;                 // by the submitting thread, under the table's mutex
  std::atomic<bool> held{false};        // it is not submitted to the agreement yet, see Hold; nobody looks at the plan
  bool invited = false;  // this rank has joined; the operation is one of the others', and has no memory here

  // For a timeline, if one is recorded (Timeline::Stamp); else 0.
  int64_t submitted_ns = 0;               // by the submitting thread
  int64_t agreed_ns = 0, started_ns = 0;  // by the driver

  uint64_t nvtx_range = 0;  // by the submitting thread; 0 where no profiler looks

  // Driver only.
  TimePoint submitted{};  // when it was first looked at; a clock costs as much as a small operation
  size_t works_left = 0;
  bool stuck_reported = false;

  bool done() const { return done_.load(); }
  const Status& status() const { return status_; }  // REQUIRES: done()

  // The first call counts. What happens in done_function may destroy the caller's reference, so keep one.
  void Complete(Status status) {
    if (completing_.exchange(true)) return;
    status_ = std::move(status);
    if (submitted_ns != 0) RecordOperation(*this);
    if (nvtx_range != 0) Nvtx::End(nvtx_range);
    done_.store(true);  // sequentially consistent: before the look for waiters (role.h)
    if (request.done != nullptr) request.done(request.done_argument, status_, event);
  }

  // Instead of Complete, for one that could not be submitted: whoever would wait for it need not.
  void Abandon(Status status) {
    if (nvtx_range != 0) Nvtx::End(nvtx_range);
    status_ = std::move(status);
    done_.store(true);
  }

 private:
  std::string name_;
  int64_t turn_ = -1;
  Status status_;
  std::atomic<bool> completing_{false};
  std::atomic<bool> done_{false};
};

using OperationPtr = std::shared_ptr<Operation>;

// Finds who performs the operation; kInvalid when nobody in the user's list can.
Status ChooseBackend(const Preference& preference, const ProcessSet& set, Operation* operation);

// What can be wrong with a request on this rank alone; kInvalid says what and what is allowed. Fills in the splits of
// an alltoall that leaves them out.
Status CheckRequest(Request* request, const ProcessSet& set, int world_size);

// What a rank that has joined takes part in: all that the others said, without memory.
Request Invitation(const Description& description);

}  // namespace farandole
