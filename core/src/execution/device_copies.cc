#include "execution/device_copies.h"

#include <algorithm>
#include <thread>

namespace farandole {
namespace {

constexpr size_t kLine = 64;

size_t WholeLines(size_t size_bytes) { return (size_bytes + kLine - 1) / kLine * kLine; }

constexpr std::chrono::microseconds kPollInterval{20};
constexpr std::chrono::milliseconds kPatience{5000};

}  // namespace

// ---- which device

// Looks up both addresses, since a result may lie on another device than the input.
Status FindDeviceOf(const Devices& devices, const Request& request, Device** result) {
  Device*& found = *result;
  found = nullptr;
  for (const Tensor& tensor : request.tensors) {
    if (tensor.device == static_cast<int32_t>(DeviceKind::kHost)) continue;
    for (const void* address : {tensor.input, static_cast<const void*>(tensor.output)}) {
      if (address == nullptr) continue;
      Device* device = nullptr;
      const Status looked_up = devices.Find(static_cast<DeviceKind>(tensor.device), address, &device);
      if (!looked_up.ok() && tensor.size_bytes() == 0) continue;  // an empty tensor need not have memory
      FRD_RETURN_IF_ERROR(looked_up);
      if (found != nullptr && device != found) {
        return Invalid("its tensors lie on ", found->name(), " and on ", device->name(),
                       "; use one operation for each device");
      }
      found = device;
    }
  }
  return Status::Ok();
}

// The last copy of the request destroys the event, on whatever thread that happens.
Status MarkReady(const Devices& devices, Request* request) {
  Device* device = nullptr;
  FRD_RETURN_IF_ERROR(FindDeviceOf(devices, *request, &device));
  if (device == nullptr) return Status::Ok();
  Event event = nullptr;
  FRD_RETURN_IF_ERROR(device->MarkAll(&event));
  if (event == nullptr) return Status::Ok();
  request->mark = std::shared_ptr<void>(event, [device](Event each) { device->DestroyEvent(each); });
  for (Tensor& tensor : request->tensors) tensor.ready_event = event;
  return Status::Ok();
}

// ---- the memory of one operation

CopyStreams::~CopyStreams() {
  for (Stream stream : {in, out}) {
    if (stream != nullptr) device->DestroyStream(stream);
  }
}

Status CopyStreams::Open() {
  if (in == nullptr) FRD_RETURN_IF_ERROR(device->CreateStream(&in));
  return out == nullptr ? device->CreateStream(&out) : Status::Ok();
}

HostCopy::HostCopy(Device* device, const Request& request, int rank)
    : device_(device), request_(request), is_root_(OnlyRootSends(request.kind) && request.root == rank) {
  for (const Tensor& tensor : request.tensors) {
    offsets_.push_back(size_bytes_);
    size_bytes_ += WholeLines(tensor.size_bytes());
  }
}

HostCopy::~HostCopy() {
  if (event_ != nullptr) device_->DestroyEvent(event_);
}

bool HostCopy::Reads() const { return !OnlyRootSends(request_.kind) || is_root_; }

// The root of a broadcast has what it sends; results that the core has allocated are in host memory.
bool HostCopy::Writes(const Tensor& tensor) const {
  if (tensor.output == nullptr || tensor.size_bytes() == 0) return false;
  return !is_root_ || tensor.output != tensor.input;
}

Status HostCopy::Keep(Status status) {
  if (!status.ok()) failed_ = status;
  return status;
}

// Does what can fail before it enqueues copies, so that a failure there leaves nothing begun.
Status HostCopy::CopyIn(CopyStreams* streams) {
  FRD_RETURN_IF_ERROR(failed_);
  streams_ = streams;
  if (event_ == nullptr) FRD_RETURN_IF_ERROR(device_->CreateEvent(&event_));
  FRD_RETURN_IF_ERROR(streams->pool.Take(size_bytes_, &block_));
  state_ = State::kComing;
  return Keep(EnqueueCopyIn());
}

// The stream waits even where nothing is read: the results may overwrite what the framework still computes with.
Status HostCopy::EnqueueCopyIn() {
  for (size_t i = 0; i < request_.tensors.size(); ++i) {
    const Tensor& tensor = request_.tensors[i];
    const size_t size_bytes = tensor.size_bytes();
    if (tensor.ready_event != nullptr) FRD_RETURN_IF_ERROR(device_->WaitInStream(streams_->in, tensor.ready_event));
    if (size_bytes == 0 || !Reads()) continue;
    FRD_RETURN_IF_ERROR(device_->CopyToHost(at(i), tensor.input, size_bytes, streams_->in));
  }
  return device_->Record(event_, streams_->in);
}

// Changes the state before it enqueues copies: when that fails half way, the device may use the block already.
Status HostCopy::CopyOut() {
  state_ = State::kReturning;
  return Keep(EnqueueCopyOut());
}

Status HostCopy::EnqueueCopyOut() {
  for (size_t i = 0; i < request_.tensors.size(); ++i) {
    const Tensor& tensor = request_.tensors[i];
    if (!Writes(tensor)) continue;
    returns_ = true;
    FRD_RETURN_IF_ERROR(device_->CopyToDevice(tensor.output, at(i), tensor.size_bytes(), streams_->out));
  }
  if (returns_) return device_->Record(event_, streams_->out);
  state_ = State::kOver;
  return Status::Ok();
}

Status HostCopy::Poll() {
  FRD_RETURN_IF_ERROR(failed_);
  if (state_ != State::kComing && state_ != State::kReturning) return Status::Ok();
  bool happened = false;
  FRD_RETURN_IF_ERROR(Keep(device_->HasHappened(event_, &happened)));
  if (happened && state_ == State::kComing) PrescaleOnHost();
  if (happened) state_ = state_ == State::kComing ? State::kHere : State::kOver;
  return Status::Ok();
}

void HostCopy::PrescaleOnHost() {
  if (request_.prescale == 1.0 || !Reduces(request_.kind)) return;
  for (size_t i = 0; i < request_.tensors.size(); ++i) Prescale(request_.tensors[i], request_.prescale, at(i), at(i));
}

void HostCopy::ReleaseMemory() {
  if (block_.memory != nullptr) streams_->pool.GiveBack(block_);
  block_ = Block();
}

Status MakeHostCopy(const Devices& devices, const Request& request, int rank, std::shared_ptr<HostCopy>* copy) {
  Device* found = nullptr;
  FRD_RETURN_IF_ERROR(FindDeviceOf(devices, request, &found));
  const auto has_bytes = [](const Tensor& tensor) { return tensor.size_bytes() > 0; };
  const bool any = std::any_of(request.tensors.begin(), request.tensors.end(), has_bytes);
  if (found != nullptr && any) *copy = std::make_shared<HostCopy>(found, request, rank);
  return Status::Ok();
}

// ---- all of them

HostCopies::HostCopies(int wake_event, size_t ahead_bytes) : ahead_bytes_(ahead_bytes), waker_(wake_event) {}

HostCopies::~HostCopies() {
  std::vector<Completed> completed;
  Drop();
  Drain(&completed);
}

void HostCopies::Await(const OperationPtr& operation) {
  if (operation->host_copy) waiting_.push_back(operation);
}

// Every operation of the task begins before any is waited for, so that the device copies all of them in one go. While
// memory will still be given back, it waits for that rather than fail.
Status HostCopies::Prepare(PlannedTask* planned, bool* ready) {
  *ready = true;
  for (const OperationPtr& operation : planned->operations) {
    HostCopy* const copy = operation->host_copy.get();
    if (copy == nullptr) continue;
    if (copy->state() == HostCopy::State::kWaiting) {
      const bool memory_will_come = short_of_memory_ && !leaving_.empty();
      if (!memory_will_come) FRD_RETURN_IF_ERROR(Begin(operation));
    }
    FRD_RETURN_IF_ERROR(copy->Poll());
    if (copy->state() != HostCopy::State::kHere) *ready = false;
  }
  if (!*ready) return Status::Ok();
  for (size_t i = 0; i < planned->task.buffers.size(); ++i) {
    const Operation& operation = *planned->operations[i];
    if (!operation.host_copy) continue;
    const size_t tensor = planned->tensors[i];
    IoBuffer& buffer = planned->task.buffers[i];
    buffer.input = operation.host_copy->at(tensor);
    if (operation.request.tensors[tensor].output != nullptr) buffer.output = operation.host_copy->at(tensor);
  }
  return Status::Ok();
}

// When memory is short, begins nothing and leaves the operation in its place.
Status HostCopies::Begin(const OperationPtr& operation) {
  HostCopy* const copy = operation->host_copy.get();
  CopyStreams& streams = streams_.try_emplace(copy->device(), copy->device()).first->second;
  FRD_RETURN_IF_ERROR(streams.Open());
  const Status begun = copy->CopyIn(&streams);
  if (copy->state() == HostCopy::State::kWaiting) return begun;
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), operation));
  begun_.push_back(operation);
  held_bytes_ += copy->size_bytes();
  if (begun.ok()) waker_.WakeAfter(copy->device(), copy->in());
  return begun;
}

// Freeing waits for the device, and so for a task under way. REQUIRES: there is none.
void HostCopies::FreeSurplus() {
  for (auto& [device, streams] : streams_) streams.pool.FreeSurplus();
}

// Prepare reports errors from here, when the operation's turn comes.
bool HostCopies::BeginAhead() {
  bool moved = false;
  while (!waiting_.empty() && !short_of_memory_) {
    const OperationPtr operation = waiting_.front();
    if (held_bytes_ + operation->host_copy->size_bytes() > ahead_bytes_) return moved;
    short_of_memory_ = !Begin(operation).ok();
    moved = true;
  }
  return moved;
}

// With a done function the caller can wait for an event of the device; without one it waits for the end of the copy.
Status HostCopies::Return(const OperationPtr& operation, bool* complete) {
  *complete = true;
  HostCopy* const copy = operation->host_copy.get();
  if (copy == nullptr) return Status::Ok();
  begun_.erase(std::find(begun_.begin(), begun_.end(), operation));
  const Status status = copy->CopyOut();
  if (!status.ok() || copy->state() == HostCopy::State::kOver) {
    Release(operation.get());
    return status;
  }
  *complete = !operation->request.EndsWhenReadable();
  if (*complete) operation->event = copy->event();
  leaving_.push_back({operation, !*complete});
  waker_.WakeAfter(copy->device(), copy->out());
  return Status::Ok();
}

bool HostCopies::Poll(std::vector<Completed>* completed) {
  const bool ended = EndLeaving(completed);
  return BeginAhead() || ended;
}

// Ends copies in the order in which they were begun, which is the device's.
bool HostCopies::EndLeaving(std::vector<Completed>* completed) {
  bool moved = false;
  while (!leaving_.empty()) {
    HostCopy* const copy = leaving_.front().operation->host_copy.get();
    const Status status = copy->Poll();
    const bool under_way = copy->state() == HostCopy::State::kComing || copy->state() == HostCopy::State::kReturning;
    if (status.ok() && under_way) return moved;
    Release(leaving_.front().operation.get());
    if (leaving_.front().completes) completed->push_back({leaving_.front().operation, status});
    leaving_.pop_front();
    moved = true;
  }
  return moved;
}

// After an error the device may still use the block, which is then left to it.
void HostCopies::Release(Operation* operation) {
  HostCopy* const copy = operation->host_copy.get();
  held_bytes_ -= copy->size_bytes();
  short_of_memory_ = false;
  if (copy->state() == HostCopy::State::kHere || copy->state() == HostCopy::State::kOver) copy->ReleaseMemory();
}

// A copy that has begun cannot be cancelled. Its operation is over now, and its memory is kept until the end of the
// copy. With done_when_readable the owner has no event to wait for.
bool HostCopies::Drop() {
  waiting_.clear();
  for (OperationPtr& operation : begun_) {
    if (!operation->request.done_when_readable) operation->event = operation->host_copy->event();
    leaving_.push_back({std::move(operation), false});
  }
  begun_.clear();
  return std::any_of(leaving_.begin(), leaving_.end(),
                     [](const Leaving& each) { return each.operation->request.done_when_readable; });
}

void HostCopies::Drain(std::vector<Completed>* completed) {
  const TimePoint end = Now() + kPatience;
  while (!leaving_.empty() && Now() < end) {
    if (!EndLeaving(completed)) std::this_thread::sleep_for(kPollInterval);
  }
}

// For a set of one rank, whose operations do not pass the progress loop: the caller itself waits for the device.
Status HostCopies::RunAlone(const OperationPtr& operation, const std::function<Status()>& perform) {
  const Status status = TryAlone(operation, perform);
  if (status.ok()) return status;
  std::vector<Completed> unused;
  if (Drop()) Drain(&unused);
  return status;
}

Status HostCopies::TryAlone(const OperationPtr& operation, const std::function<Status()>& perform) {
  std::vector<Completed> completed;
  Poll(&completed);  // frees the memory of earlier operations
  Await(operation);
  PlannedTask planned;
  planned.operations = {operation};
  for (bool ready = false; !ready;) {
    FRD_RETURN_IF_ERROR(Prepare(&planned, &ready));
    if (!ready) std::this_thread::sleep_for(kPollInterval);
  }
  FRD_RETURN_IF_ERROR(perform());
  bool complete = false;
  FRD_RETURN_IF_ERROR(Return(operation, &complete));
  while (!complete && completed.empty()) {
    if (!Poll(&completed)) std::this_thread::sleep_for(kPollInterval);
  }
  return complete ? Status::Ok() : completed[0].status;
}

}  // namespace farandole
