#include "call.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "errors.h"

namespace farandole_mxnet {
namespace {

// Element types: MXNet's number -> the core's, or -1.
constexpr int32_t kDTypes[] = {FRD_FLOAT32, FRD_FLOAT64, FRD_FLOAT16, FRD_UINT8, FRD_INT32, FRD_INT8,    FRD_INT64,
                               FRD_BOOL,    FRD_INT16,   FRD_UINT16,  -1,        -1,        FRD_BFLOAT16};
constexpr size_t kElementBytes[] = {1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 1};

constexpr std::chrono::microseconds kLook{100};
constexpr size_t kSmallBytes = 4096;

std::shared_mutex world_mutex;  // shared while the core's enqueue runs, so that shutdown waits
int64_t generation = 0;         // guarded by it; how many worlds have been closed
std::atomic<bool> has_failed{false};
std::atomic<bool> has_lost_gradient{false};
std::mutex failure_mutex;
Outcome failure;

// The exception class that Python raises. MXNet reads it from the beginning of the text.
const char* ClassOf(int32_t code) {
  switch (code) {
    case FRD_INVALID:
      return "farandole.ArgumentError: ";
    case FRD_MISMATCH:
      return "farandole.MismatchError: ";
    case FRD_PEER_LOST:
      return "farandole.PeerLostError: ";
    case FRD_DEADLINE:
      return "farandole.DeadlineError: ";
    case FRD_NOT_INITIALIZED:
      return "farandole.NotInitializedError: ";
    default:
      return "farandole.FarandoleError: ";
  }
}

bool EndsTheWorld(int32_t code) { return code == FRD_PEER_LOST || code == FRD_DEADLINE || code == FRD_INTERNAL; }

void Remember(const Outcome& outcome, bool is_gradient) {
  if (outcome.code == FRD_OK || outcome.code == FRD_NOT_INITIALIZED) return;
  if (!is_gradient && !EndsTheWorld(outcome.code)) return;
  std::lock_guard<std::mutex> lock(failure_mutex);
  if (is_gradient) has_lost_gradient = true;
  if (has_failed) return;
  failure = outcome;
  has_failed = true;
}

Outcome Invalid(const std::string& message) { return {FRD_INVALID, message}; }

bool HasResults(int32_t operation) { return operation == FRD_REDUCESCATTER; }

size_t ElementCount(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

Outcome ShapeOf(NDArrayHandle array, std::vector<int64_t>* shape) {
  int dimension_count = 0;
  const int64_t* extents = nullptr;
  if (mx.NDArrayGetShapeEx64(array, &dimension_count, &extents) != 0) return Invalid(mx.GetLastError());
  if (dimension_count < 0) return Invalid("the array has no shape yet");
  shape->assign(extents, extents + dimension_count);
  for (const int64_t extent : *shape) {
    if (extent < 0) return Invalid("the array has no shape yet");
  }
  return {};
}

Outcome DTypeOf(NDArrayHandle array, int32_t* dtype) {
  int number = -1;
  if (mx.NDArrayGetDType(array, &number) != 0) return Invalid(mx.GetLastError());
  const bool known = number >= 0 && number < static_cast<int>(sizeof kDTypes / sizeof kDTypes[0]);
  if (!known || kDTypes[number] < 0) {
    return Invalid("arrays of MXNet's element type number " + std::to_string(number) + " cannot be reduced or sent");
  }
  *dtype = kDTypes[number];
  return {};
}

Outcome ContextOf(NDArrayHandle array, MxContext* context) {
  int storage = 0;
  if (mx.NDArrayGetStorageType(array, &storage) != 0 ||
      mx.NDArrayGetContext(array, &context->device_type, &context->device_id) != 0) {
    return Invalid(mx.GetLastError());
  }
  if (storage != kMxDefaultStorage) {
    return Invalid("sparse arrays cannot be reduced or sent: convert them with tostype('default')");
  }
  return {};
}

// Finds the array's memory; returns false if it has a layout of oneDNN's. Unlike MXNDArrayGetData this converts
// nothing: a conversion would wait for the very operation that runs, or for the next write to the array, which waits
// for this call.
bool MemoryOf(NDArrayHandle array, void** data) {
  void* managed = nullptr;
  if (mx.NDArrayToDLPack(array, &managed) != 0) return false;
  *data = *static_cast<void**>(managed);  // the first field of the first field
  mx.NDArrayCallDLPackDeleter(managed);
  return true;
}

// MXNet's fork() handler waits for all operations. The core's handler was installed before this one, so it runs after
// it, and lets no operation begin.
void InstallForkHandler() {
  static std::atomic<bool> is_installed{false};
  if (is_installed || core->is_initialized() != 1 || is_installed.exchange(true)) return;
  pthread_atfork([] { CallOrder().Hold(); }, [] { CallOrder().Release(); }, [] { CallOrder().Release(); });
}

int64_t CurrentGeneration() {
  std::shared_lock<std::shared_mutex> lock(world_mutex);
  return generation;
}

}  // namespace

const frd_api* core = nullptr;

Order& CallOrder() {
  static Order* const order = new Order;  // the core's threads may outlive static objects
  return *order;
}

void CloseCalls() {
  {
    std::unique_lock<std::shared_mutex> lock(world_mutex);
    ++generation;
  }
  std::lock_guard<std::mutex> lock(failure_mutex);
  has_failed = has_lost_gradient = false;
  failure = {};
}

bool HasFailed() { return has_failed.load(std::memory_order_relaxed); }
bool HasLostGradient() { return has_lost_gradient; }

Outcome Failure() {
  std::lock_guard<std::mutex> lock(failure_mutex);
  return failure;
}

Call::Call(const Wish& wish) : Ordered(wish.process_set, wish.name), wish_(wish), generation_(CurrentGeneration()) {}

Call::~Call() { FreeArrays(); }

void Call::FreeArrays() {
  for (const NDArrayHandle array : inputs_) mx.NDArrayFree(array);
  if (!is_in_place_) {
    for (const NDArrayHandle array : outputs_) mx.NDArrayFree(array);
  }
  inputs_.clear();
  outputs_.clear();
}

Outcome Call::Push(const Wish& wish, const NDArrayHandle* inputs, const NDArrayHandle* outputs, int count) {
  auto call = std::make_shared<Call>(wish);
  if (const Outcome described = call->Describe(inputs, outputs, count); described.code != FRD_OK) return described;
  InstallForkHandler();
  CallOrder().Add(call.get());
  const MxContext host = {1, 0};
  const int property = kMxCpuPrioritized;
  const int reads = call->is_in_place_ ? 0 : count;
  auto* const argument = new std::shared_ptr<Call>(call);
  if (mx.EnginePushAsyncND(&Call::Execute, argument, &Call::Delete, &host, call->inputs_.data(), reads,
                           call->outputs_.data(), count, &property, wish.priority, "farandole", false) != 0) {
    return {FRD_INTERNAL, mx.GetLastError()};
  }
  // MXNet's naive engine runs an operation inside the push, and loses its error.
  return call->by_pusher_ ? call->outcome_ : Outcome{};
}

Outcome Call::Describe(const NDArrayHandle* inputs, const NDArrayHandle* outputs, int count) {
  is_in_place_ = std::equal(inputs, inputs + count, outputs);
  shapes_.resize(count);
  tensors_.resize(count);
  if (const Outcome found = FindDevice(inputs, outputs, count); found.code != FRD_OK) return found;
  for (int i = 0; i < count; ++i) {
    tensors_[i] = {};
    tensors_[i].struct_size = sizeof(frd_tensor);
    if (const Outcome shaped = ShapeOf(inputs[i], &shapes_[i]); shaped.code != FRD_OK) return shaped;
    if (const Outcome typed = DTypeOf(inputs[i], &tensors_[i].dtype); typed.code != FRD_OK) return typed;
    tensors_[i].shape = shapes_[i].data();
    tensors_[i].dimension_count = static_cast<int32_t>(shapes_[i].size());
    tensors_[i].device = device_;
  }
  for (int i = 0; i < count; ++i) {
    NDArrayHandle kept = nullptr;
    if (mx.ShallowCopyNDArray(inputs[i], &kept) != 0) return Invalid(mx.GetLastError());
    inputs_.push_back(kept);
    if (is_in_place_) continue;
    if (mx.ShallowCopyNDArray(outputs[i], &kept) != 0) return Invalid(mx.GetLastError());
    outputs_.push_back(kept);
  }
  if (is_in_place_) outputs_ = inputs_;
  return {};
}

// No event says when the inputs are valid: MXNet runs an operation only after the device has computed what it reads.
Outcome Call::FindDevice(const NDArrayHandle* inputs, const NDArrayHandle* outputs, int count) {
  int on_gpu = 0;
  bool is_one = true;
  MxContext first = {}, context = {};
  for (int i = 0; i < 2 * count; ++i) {
    const NDArrayHandle array = i < count ? inputs[i] : outputs[i - count];
    if (const Outcome found = ContextOf(array, &context); found.code != FRD_OK) return found;
    if (i == 0) first = context;
    if (context.device_type == kMxGpu) ++on_gpu;
    if (context.device_id != first.device_id) is_one = false;
  }
  if (on_gpu == 0) return {};
  if (on_gpu < 2 * count || !is_one || !wish_.takes_device_memory || HasResults(wish_.operation)) {
    return {kOnDevice, "an array is on a GPU"};
  }
  device_ = FRD_CUDA;
  return {};
}

void Call::Execute(void*, void* completion, void* argument) {
  const std::shared_ptr<Call> call = *static_cast<std::shared_ptr<Call>*>(argument);
  std::memcpy(&call->completion_, completion, sizeof call->completion_);
  call->was_executed_ = true;
  call->by_pusher_ = call->pusher_ == std::this_thread::get_id();
  call->self_ = call;
  if (!call->FindMemory()) {
    call->outcome_ = Invalid(
        "an array that is to be changed in place is in a layout of oneDNN's; use the function that returns a new "
        "array");  // to which Python passes a copy in the usual layout
  }
  CallOrder().Ready(call.get());
}

void Call::Delete(void* argument) {
  const std::unique_ptr<std::shared_ptr<Call>> call(static_cast<std::shared_ptr<Call>*>(argument));
  if (!(*call)->was_executed_) CallOrder().Skip(call->get());  // one of its arrays carries an error
}

bool Call::FindMemory() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    void* data = nullptr;
    if (!MemoryOf(inputs_[i], &data)) return false;
    tensors_[i].input = data;
    if (is_in_place_) {
      tensors_[i].output = data;
    } else if (!FindOutput(i)) {
      return false;
    }
  }
  return true;
}

bool Call::FindOutput(size_t index) {
  void* data = nullptr;
  if (!MemoryOf(outputs_[index], &data)) return false;
  if (!HasResults(wish_.operation)) {
    tensors_[index].output = data;
    return true;
  }
  std::vector<int64_t> shape;
  if (ShapeOf(outputs_[index], &shape).code != FRD_OK) return false;
  results_.push_back(data);
  result_bytes_.push_back(ElementCount(shape) * kElementBytes[tensors_[index].dtype]);
  return true;
}

frd_request Call::Request() {
  frd_request request = {};
  request.struct_size = sizeof request;
  request.operation = wish_.operation;
  request.tensors = tensors_.data();
  request.tensor_count = static_cast<uint32_t>(tensors_.size());
  request.reduce = wish_.reduce;
  request.root = wish_.root;
  request.name = wish_.name.c_str();
  request.prescale = wish_.prescale;
  request.postscale = wish_.postscale;
  request.done = &Call::OnDone;
  request.done_argument = this;
  request.process_set = wish_.process_set;
  request.site = wish_.site.c_str();
  request.done_when_readable = 1;  // MXNet's engine can only be told of completion
  return request;
}

void Call::Begin() {
  const std::shared_ptr<Call> keep = self_;
  const Outcome begun = outcome_.code == FRD_OK ? Enqueue() : outcome_;
  if (begun.code == FRD_OK) return Arrive();  // OnDone may be running already
  outcome_ = begun;
  Complete();
}

Outcome Call::Enqueue() {
  std::shared_lock<std::shared_mutex> lock(world_mutex);
  if (generation_ != generation) {
    return {FRD_NOT_INITIALIZED,
            "the arrays were not computed yet when farandole.shutdown() was called; call "
            "mx.nd.waitall() before it"};
  }
  const frd_request request = Request();
  const int32_t code = core->enqueue(&request, &operation_);
  if (code != FRD_OK) return {code, core->last_error()};
  LookForOthers();
  return {};
}

// A small allreduce is complete when all ranks have begun it, so a short look often finds the result: to wake the
// core's thread for it would take longer, and the caller mostly waits next. Gradients are reduced while others are
// computed.
void Call::LookForOthers() {
  if (wish_.operation != FRD_ALLREDUCE || wish_.is_gradient || !IsSmall()) return;
  const auto end = std::chrono::steady_clock::now() + kLook;
  while (core->poll(operation_) == FRD_IN_PROGRESS && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

bool Call::IsSmall() const {
  size_t size_bytes = 0;
  for (size_t i = 0; i < tensors_.size(); ++i)
    size_bytes += ElementCount(shapes_[i]) * kElementBytes[tensors_[i].dtype];
  return size_bytes <= kSmallBytes;
}

void Call::OnDone(void* argument, int32_t code, const char* message, void*) {
  Call* const call = static_cast<Call*>(argument);
  if (code != FRD_OK) call->outcome_ = {code, message};
  call->Arrive();
}

void Call::Arrive() {
  if (arrivals_.fetch_add(1) == 0) return;  // OnDone may come before enqueue has returned the operation
  if (outcome_.code == FRD_OK) outcome_ = TakeRows();
  core->release(operation_);
  Complete();
}

Outcome Call::TakeRows() {
  for (uint32_t i = 0; i < results_.size(); ++i) {
    frd_output output = {};
    output.struct_size = sizeof output;
    if (core->output(operation_, i, &output) != FRD_OK) return {FRD_INTERNAL, core->last_error()};
    if (output.size_bytes != result_bytes_[i]) return {FRD_INTERNAL, "the result is not as large as its array"};
    if (output.size_bytes != 0) std::memcpy(results_[i], output.data, output.size_bytes);
  }
  return {};
}

void Call::Complete() {
  const std::shared_ptr<Call> keep = std::move(self_);
  Remember(outcome_, wish_.is_gradient);
  const MxCompletion completion = completion_;
  if (outcome_.code == FRD_OK) {
    completion.callback(completion.engine, completion.operation, nullptr);
    FreeArrays();
  } else {
    const std::lock_guard<std::recursive_mutex> lock(ErrorsMutex());
    Fail(completion, ClassOf(outcome_.code) + outcome_.message);
    FreeArrays();
  }
  CallOrder().Ended(this);  // MXNet does nothing more for this call, and may exit now
}

}  // namespace farandole_mxnet
