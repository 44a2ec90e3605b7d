// One submitted collective, from submission to completion.
//
//   kMade --Submit, or once its name is free (kDeferred)--> kSubmitted ----------------------------> kEnding --> kDone
//
//     slots             the data are written --all have written--> reduced (--all shares are there--> copied)
//     early sum         the data are on their way --all data are here--> reduced
//     any other         described, or counted --all ranks have arrived--> agreed: in a batch --task--> performed
//
// A failure, or the end of the epoch, also leads to kEnding from any earlier state: the first thread that calls
// ClaimEnd completes the operation. The rows below kSubmitted are states of the negotiation (controller/admission.h),
// of the slots (transport/shm/slots.h), of EarlySum and of WorkQueue; the operation itself does not keep them.
//
// Thread safety: the submitting thread fills in an Operation before it begins. Afterwards any thread may call state(),
// done() and deferred(); comments on the other members say who may use them.
//
// Invariants:
// 1. An operation is in flight while it is deferred or submitted. It enters and leaves that only through
//    Operations::Begin and Operations::Complete (operations.h).
// 2. Exactly one thread ends an operation: the first to call ClaimEnd, which also decides its status.
// 3. Results, status and event do not change once done() is true, so any thread may then read them.
// 4. An operation that is in flight owns its request.
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
#include "operation/flight_recorder.h"
#include "operation/request.h"
#include "operation/timeline.h"
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
  enum class State : uint8_t { kMade, kDeferred, kSubmitted, kEnding, kDone };

  Operation() = default;  // call Borrow next
  explicit Operation(const Request& asked) : Operation(Request(asked)) {}
  // If it throws, the request is unchanged.
  explicit Operation(Request&& asked) : Operation(std::string(asked.name), std::move(asked)) {}

  // Starts a blocking call with one small tensor without copying its request: an allocation would cost nearly as much
  // as the rest of such a call. `asked` and `name` must stay valid until the operation is done or Own has returned.
  // Resets an operation that was used before. sequence_number: -1 if the user has named the operation.
  // REQUIRES: CanBorrow(asked); no other thread has the operation, before Own has returned.
  void Borrow(const RequestView& asked, std::string_view name, int64_t sequence_number);
  static bool CanBorrow(const RequestView& asked);
  // Copies what was borrowed. If it throws, nothing has changed.
  void Own();

  // For the negotiation.
  int set() const override { return request.process_set; }
  std::string_view name() const override { return borrowed_ != nullptr ? borrowed_name_ : std::string_view(name_); }
  int64_t sequence_number() const override { return sequence_number_; }
  std::string_view site() const override { return borrowed_ != nullptr ? borrowed_->site : request.site; }
  std::vector<int64_t> Counts() const override;
  bool Matches(const Signature& signature) const override {
    return borrowed_ != nullptr ? farandole::Matches(*borrowed_, signature) : farandole::Matches(request, signature);
  }
  Description Describe() const override;

  bool named() const { return sequence_number_ < 0; }
  void SetName(std::string name, int64_t sequence_number) {  // for an unnamed operation, before it is submitted
    name_ = std::move(name);
    sequence_number_ = sequence_number;
  }
  // REQUIRES, for Title and Call: nothing is borrowed.
  std::string Title() const { return TitleOf(request.kind, request.process_set, name_, sequence_number_); }
  // What the user called, and where: "save_checkpoint at train.py:14", "allreduce 'w' at train.py:9".
  std::string Call() const;
  // For the flight recorder; Texts has the name and the shapes. Under the lock of Operations.
  FlightFacts Facts() const;
  std::pair<std::string_view, std::string> Texts() const;

  // The tensors of a small operation in the form that slot_reduction.h takes. They are stored at submission, so that
  // the end allocates nothing. REQUIRES: Borrow or SetSlotTensors was called.
  Span<const SlotTensor> slot_tensors() const {
    return several_.empty() ? Span<const SlotTensor>{&one_, 1}
                            : Span<const SlotTensor>{several_.data(), several_.size()};
  }
  void SetSlotTensors();

  // While borrowed, only its RequestFields are set. Apart from that it does not change.
  Request request;
  // If AllocatesOutput: one per tensor, then for alltoall one per tensor with the rows received from each position. For
  // join: the last rank; for add_process_set: the id.
  std::vector<Output> outputs;
  Device* device = nullptr;             // of the tensors, if their backend takes device memory; else null
  std::shared_ptr<ResultPool> results;  // of `device`, if AllocatesOutput
  std::shared_ptr<HostCopy> host_copy;  // null when the tensors are on the host, or their backend takes device memory
  Event event = nullptr;                // of host_copy; when done: see DoneFunction
  int backend = 0;                      // index of its backend (backends/table.h)
  Admission admission;                  // set by the submitting thread, under the lock of Operations
  bool awaited = false;  // the caller waits for it next; if unnamed, callers wait for every operation of its name
  bool invited = false;  // this rank has joined: the other ranks' operation, which has no memory here

  // Set while a timeline is recorded (Timeline::Timestamp); else 0.
  int64_t submitted_ns = 0;               // by the submitting thread
  int64_t agreed_ns = 0, started_ns = 0;  // by the driver

  std::atomic<uint32_t> failed_polls{0};  // see Engine::Poll
  std::string missing;                    // under the lock of Operations: names of the ranks that a long wait is for

  FlightRecord* record = nullptr;  // set under the lock of Operations; may be null
  uint64_t nvtx_range = 0;         // set by the submitting thread; 0 without a profiler

  // Driver only, except that Borrow resets them.
  TimePoint submitted{};  // when the driver first saw it: reading a clock costs as much as a small operation
  size_t tasks_left = 0;
  std::vector<std::shared_ptr<std::byte>> scratch;  // memory for its tasks, besides the tensors
  bool stuck_reported = false;

  State state() const { return state_.load(); }
  void set_state(State state) { state_.store(state); }           // only for Operations::Begin
  bool deferred() const { return state() == State::kDeferred; }  // `admission` is not valid yet
  bool done() const { return state() == State::kDone; }
  const Status& status() const { return status_; }  // REQUIRES: done()

  // Completes an operation that is not in flight: in a world of one rank, or if it could not be submitted. The latter
  // is not announced, since Submit returns the error.
  void CompleteAlone(Status status, bool announced) {
    if (State was; ClaimEnd(&was)) Complete(std::move(status), announced);
  }
  // Returns true for one thread, which must then call Complete. `was`: the state before.
  bool ClaimEnd(State* was);
  // The only place where an operation ends. The simulation of jobs checks these rules:
  //
  // - Its path is done, has failed, or was cancelled by a call that has returned. So nothing touches its memory any
  //   more, except a library that did not react to the abort in time.
  // - The thread holds no lock that Submit takes, since `done` may submit the next operation.
  // - No rank leaves the world before the operations in flight have ended.
  //
  // `done` may destroy the caller's reference, so hold another one. REQUIRES: ClaimEnd returned true.
  void Complete(Status status, bool announced);

 private:
  Operation(std::string&& name, Request&& asked) : request(std::move(asked)), name_(std::move(name)) {}

  std::string name_;
  int64_t sequence_number_ = -1;
  const RequestView* borrowed_ = nullptr;  // null: `request` has everything
  std::string_view borrowed_name_;
  SlotTensor one_;
  std::vector<SlotTensor> several_;
  Status status_;
  std::atomic<State> state_{State::kMade};
};

using OperationPtr = std::shared_ptr<Operation>;

// The reduction and scale of an allreduce or reducescatter as the kernels take them: an average is a sum and a divisor.
struct Reduction {
  ReduceOp reduce = ReduceOp::kSum;
  Scale scale;  // of the result; the prescale factor has its own functions
};
Reduction ReductionOf(const RequestFields& request, int set_size);

// The prescale factor acts on each operand before the reduction, rounded to the operand's type: 16- and 32-bit floats
// are scaled in float32, float64 and integers in double, and integers are truncated.
//
//   PrescaleInputs   at submission: replaces inputs in host memory by scaled copies. kInternal: there is no memory
//   Prescale         one tensor, also in place: inputs of a device, once they have been copied to the host
//   Task::scale      a backend that takes device memory scales operands itself, by the product of both factors
Status PrescaleInputs(Request* request);
void Prescale(const Tensor& tensor, double factor, const void* from, void* to);

// The facts for the choice of a backend, except those of the tensors.
OperationFacts FactsOf(const Request& request, const ProcessSet& set);

// Chooses the operation's backend; kInvalid if none in the user's list supports it.
Status ChooseBackend(const BackendList& backend_list, const ProcessSet& set, Operation* operation);

// Checks a request as far as this rank can on its own; kInvalid says what is wrong and what is allowed. Fills in the
// splits of an alltoall if there are none.
Status CheckRequest(Request* request, const ProcessSet& set, int world_size);

// Allocates the result of tensor `index`, with this many rows. kInternal if there is no memory.
Status AllocateOutput(Operation* operation, size_t index, int64_t rows);

// Allocates memory that lives as long as the operation. kInternal if there is none.
Status AllocateScratch(Operation* operation, size_t size_bytes, std::byte** memory);

// A result that is a list of numbers (a scalar when `scalar`).
Output NumbersOutput(const std::vector<int64_t>& numbers, bool scalar);

// The request with which a joined rank takes part in the other ranks' operation: as they described it, without memory.
Request Invitation(const Description& description);

}  // namespace farandole
