// One submitted collective, from submission to completion.
//
// A Request is what a plugin asks for; an Operation is what the engine makes of it and what a handle points at. The
// submitting thread fills it. One thread completes it, exactly once. Any thread that sees done() may read its results.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/table.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/types.h"
#include "controller/negotiation.h"
#include "device/block_pools.h"
#include "device/device.h"
#include "engine/flight_recorder.h"
#include "engine/request.h"
#include "engine/timeline.h"
#include "reduce/reduce.h"

namespace farandole {

// Memory that the core has allocated for a result.
struct Output {
  std::shared_ptr<std::byte> memory;
  Device* device = nullptr;  // where the memory is; null: on the host
  DType dtype = DType::kFloat32;
  Shape shape;
  size_t size_bytes = 0;
};

class HostCopy;

class Operation final : public DescribedOperation {
 public:
  explicit Operation(Request asked) : request(std::move(asked)), name_(request.name) {}

  // As the negotiation sees it.
  int set() const override { return request.process_set; }
  std::string_view name() const override { return name_; }
  int64_t sequence_number() const override { return sequence_number_; }
  std::string_view site() const override { return request.site; }
  std::vector<int64_t> Counts() const override;
  bool Means(const Signature& signature) const override { return farandole::Means(request, signature); }
  Description Describe() const override;

  bool named() const { return sequence_number_ < 0; }
  void SetName(std::string name, int64_t sequence_number) {  // of an unnamed one, before it is submitted
    name_ = std::move(name);
    sequence_number_ = sequence_number;
  }
  std::string Title() const { return TitleOf(request.kind, request.process_set, name_, sequence_number_); }

  const Request request;
  // Where AllocatesOutput: one per tensor; for alltoall then, per tensor, the rows that came from each position. For
  // join: the rank that was last; for add_process_set: the id.
  std::vector<Output> outputs;
  Device* device = nullptr;             // where the tensors lie, if their backend takes device memory; else null
  std::shared_ptr<ResultPool> results;  // of `device`, where AllocatesOutput
  std::shared_ptr<HostCopy> host_copy;  // null when the tensors are on the host, or their backend takes device memory
  Event event = nullptr;                // of host_copy; when done: see DoneFunction
  int backend = 0;                      // the number of its backend (backends/table.h)
  Admission admission;                  // set by the submitting thread, under the lock of Operations
  std::atomic<bool> deferred{false};    // not submitted to the negotiation yet, see Defer; `admission` is not valid
  bool awaited = false;                 // the caller waits for it next; unnamed: and for all others of its name
  bool invited = false;                 // this rank has joined; the operation is the others', without memory here

  // For a timeline, if one is recorded (Timeline::Stamp); else 0.
  int64_t submitted_ns = 0;               // by the submitting thread
  int64_t agreed_ns = 0, started_ns = 0;  // by the driver

  FlightRecord* record = nullptr;  // set under the lock of Operations; null: there is none
  uint64_t nvtx_range = 0;         // set by the submitting thread; 0 without a profiler

  // Driver only.
  TimePoint submitted{};  // when the driver first saw it: a clock costs as much as a small operation
  size_t tasks_left = 0;
  bool stuck_reported = false;

  bool done() const { return done_.load(); }
  const Status& status() const { return status_; }  // REQUIRES: done()

  // Ends the operation; the first call counts. `done` may destroy the caller's reference, so keep another.
  void Complete(Status status) { End(std::move(status), true); }
  // Takes the place of Complete for an operation that could not be submitted: Submit returns the error.
  void Abandon(Status status) { End(std::move(status), false); }

 private:
  // The one place where an operation ends. These rules make an end safe, and the simulation of jobs checks them:
  //
  // - Its path is done, has failed, or was cancelled by a call that has returned. Then nothing touches its memory,
  //   except a library that did not react to the abort in time.
  // - The thread that took it out of Operations ends it, so two threads never end one operation with different results.
  // - No lock of the core is held, since `done` may submit the next operation.
  // - No rank leaves the world before the operations in flight have ended.
  void End(Status status, bool announced) {
    if (ending_.exchange(true)) return;
    status_ = std::move(status);
    if (announced && submitted_ns != 0) RecordOperation(*this);
    if (record != nullptr) record->End(Ticks(), !status_.ok());
    if (nvtx_range != 0) Nvtx::End(nvtx_range);
    done_.store(true);  // sequentially consistent: before the look for waiters (progress.h)
    if (announced && request.done != nullptr) request.done(request.done_argument, status_, event);
  }

  std::string name_;
  int64_t sequence_number_ = -1;
  Status status_;
  std::atomic<bool> ending_{false};
  std::atomic<bool> done_{false};
};

using OperationPtr = std::shared_ptr<Operation>;

// The scale and reduction of an allreduce or reducescatter as the folds take them: an average is a sum with a divisor.
struct Reduction {
  ReduceOp reduce = ReduceOp::kSum;
  Scale scale;  // of the result; the prescale factor has its own functions
};
Reduction ReductionOf(const RequestFields& request, int set_size);

// The prescale factor acts on each operand before the reduction, rounded to the operand's type: 16- and 32-bit floats
// are scaled in float32, float64 and integers in double, and integers are truncated.
//
//   PrescaleInputs   at submission: inputs in host memory are replaced by scaled copies. kInternal: memory is short
//   Prescale         one tensor, also in place: inputs of a device, once they have been copied to the host
//   Task::scale      a backend that takes device memory scales operands itself, by the product of both factors
Status PrescaleInputs(Request* request);
void Prescale(const Tensor& tensor, double factor, const void* from, void* to);

// The facts on which the choice of a path depends, except for tensors and the backend.
PathFacts FactsOf(const Request& request, const ProcessSet& set);

// Finds the backend that performs the operation; kInvalid when none in the user's list can.
Status ChooseBackend(const BackendList& backend_list, const ProcessSet& set, Operation* operation);

// Checks what this rank alone can check of a request; kInvalid says what is wrong and what is allowed. Fills in the
// splits of an alltoall that leaves them out.
Status CheckRequest(Request* request, const ProcessSet& set, int world_size);

// Allocates the result of tensor `index`, with this many rows. kInternal when memory is short.
Status AllocateOutput(Operation* operation, size_t index, int64_t rows);

// A result that is a list of numbers (a scalar when `scalar`).
Output NumbersOutput(const std::vector<int64_t>& numbers, bool scalar);

// Makes the request with which a joined rank takes part: as the others described it, without memory.
Request Invitation(const Description& description);

}  // namespace farandole
