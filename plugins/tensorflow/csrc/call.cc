#include "call.h"

#include <utility>

#include "completion.h"
#include "types.h"

namespace farandole_tensorflow {

const frd_api* core = nullptr;

namespace {

// This many iterations of a loop have different names. Two executions of one node would only share a name if as many
// were in flight at once; TensorFlow has ten at most by default. Each name costs the core one of the 4096 that it
// remembers.
constexpr int64_t kIterations = 32;

int TfCodeOf(int32_t code) {
  switch (code) {
    case FRD_INVALID:
      return kTfInvalidArgument;
    case FRD_MISMATCH:
    case FRD_NOT_INITIALIZED:
      return kTfFailedPrecondition;
    case FRD_PEER_LOST:
      return kTfUnavailable;
    case FRD_DEADLINE:
      return kTfDeadlineExceeded;
    default:
      return kTfInternal;
  }
}

bool HasTensors(int32_t operation) { return operation != FRD_BARRIER && operation != FRD_JOIN; }

void Drop(void*, size_t, void* memory) { core->drop(static_cast<frd_memory*>(memory)); }

bool IsLikeInput(int32_t operation) { return operation == FRD_ALLREDUCE || operation == FRD_BROADCAST; }

}  // namespace

std::string NameOfExecution(const std::string& node, TfContext* context) {
  const uint64_t loop = tf.GetFrameId(context);
  const int64_t iteration = tf.GetIterId(context);
  if (loop == 0 && iteration == 0) return node;
  return node + "#" + std::to_string(loop % 1000000) + "." + std::to_string(iteration % kIterations);
}

void Call::Begin(const Wish& wish, TfContext* context, TfDone* done) {
  const auto call = new Call(wish, context);
  call->outcome_ =
      core == nullptr
          ? Outcome{FRD_NOT_INITIALIZED,
                    "farandole_tensorflow was not imported; import it, and call its init(), before the graph runs"}
          : call->Describe();
  if (call->outcome_.code == FRD_OK) {
    call->end_ = TakeCompletion(done);
    if (call->end_) return call->Enqueue();
    call->RunHere();
  }
  call->Complete();
  tf.RunAsyncOpKernelDoneCallback(done);
}

Call::Call(const Wish& wish, TfContext* context)
    : wish_(wish), context_(context), name_(wish.is_node ? NameOfExecution(wish.name, context) : wish.name) {}

Call::~Call() {
  for (TfTensor* const tensor : inputs_) {
    if (tensor != nullptr) tf.DeleteTensor(tensor);
  }
  for (TfTensor* const tensor : outputs_) tf.DeleteTensor(tensor);
  if (operation_ != nullptr) core->release(operation_);
}

// The inputs are the tensors, alltoall's splits, and a number that is not read: it keeps TensorFlow from computing the
// operation when it optimizes the graph.
Call::Outcome Call::Describe() {
  if (!HasTensors(wish_.operation)) return {};
  const int others = wish_.operation == FRD_ALLTOALL ? 2 : 1;
  const int count = tf.NumInputs(context_) - others;
  shapes_.resize(count);
  for (int index = 0; index < count; ++index) {
    if (const Outcome added = AddTensor(index); added.code != FRD_OK) return added;
  }
  for (int index = 0; index < count && IsLikeInput(wish_.operation); ++index) {
    if (const Outcome allocated = AllocateLike(index); allocated.code != FRD_OK) return allocated;
  }
  return wish_.operation == FRD_ALLTOALL ? TakeSplits(count) : Outcome{};
}

Call::Outcome Call::AddTensor(int index) {
  Status status;
  TfTensor* input = nullptr;
  tf.GetInput(context_, index, &input, status);
  if (!status.ok()) return {FRD_INTERNAL, status.message()};
  inputs_.push_back(input);
  std::vector<int64_t>& shape = shapes_[index];
  for (int i = 0; i < tf.NumDims(input); ++i) shape.push_back(tf.Dim(input, i));
  frd_tensor tensor = {};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = CoreTypeOf(tf.TensorType(input));
  tensor.input = tf.TensorData(input);
  tensor.shape = shape.data();
  tensor.dimension_count = static_cast<int32_t>(shape.size());
  tensor.device = wish_.on_device ? FRD_CUDA : FRD_HOST;
  tensors_.push_back(tensor);
  return {};
}

Call::Outcome Call::AllocateLike(int index) {
  // TensorFlow forwards only a tensor to which nothing else refers. The context keeps it as long as the kernel runs.
  tf.DeleteTensor(std::exchange(inputs_[index], nullptr));
  Status status;
  int forwarded = -1;
  const std::vector<int64_t>& shape = shapes_[index];
  TfTensor* const output = tf.ForwardInputOrAllocateOutput(context_, &index, 1, index, shape.data(),
                                                           static_cast<int>(shape.size()), &forwarded, status);
  if (output != nullptr) outputs_.push_back(output);
  if (!status.ok()) return {FRD_INTERNAL, status.message()};
  tensors_[index].output = tf.TensorData(output);
  return {};
}

Call::Outcome Call::TakeSplits(int index) {
  Status status;
  TfTensor* splits = nullptr;
  tf.GetInput(context_, index, &splits, status);
  if (!status.ok()) return {FRD_INTERNAL, status.message()};
  inputs_.push_back(splits);
  if (tf.TensorType(splits) != kTfInt64 || tf.NumDims(splits) != 1) {
    return {FRD_INVALID, "splits must be a list or a one-dimensional tensor of integers"};
  }
  const auto* const rows = static_cast<const int64_t*>(tf.TensorData(splits));
  splits_.assign(rows, rows + tf.Dim(splits, 0));
  return {};
}

frd_request Call::Request() {
  frd_request request = {};
  request.struct_size = sizeof request;
  request.operation = wish_.operation;
  request.tensors = tensors_.data();
  request.tensor_count = static_cast<uint32_t>(tensors_.size());
  request.reduce = wish_.reduce;
  request.root = wish_.root;
  request.name = name_.empty() ? nullptr : name_.c_str();
  request.prescale = wish_.prescale;
  request.postscale = wish_.postscale;
  request.process_set = wish_.process_set;
  request.splits = splits_.data();
  request.split_count = static_cast<uint32_t>(splits_.size());
  request.site = wish_.site.c_str();
  request.ready = wish_.on_device ? FRD_READY_AFTER_ALL : FRD_READY_BY_EVENT;
  request.done_when_readable = wish_.on_device ? 1 : 0;
  return request;
}

void Call::Enqueue() {
  frd_request request = Request();
  request.done = &Call::OnDone;
  request.done_argument = this;
  const int32_t code = core->enqueue(&request, &operation_);
  if (code == FRD_OK) return Arrive();  // OnDone may have run already
  outcome_ = {code, core->last_error()};
  Complete();
}

void Call::RunHere() {
  const frd_request request = Request();
  // A small operation without a result to take needs no frd_operation.
  const int32_t code = core->run(&request, IsLikeInput(wish_.operation) ? nullptr : &operation_);
  if (code != FRD_OK) outcome_ = {code, core->last_error()};
}

void Call::OnDone(void* argument, int32_t code, const char* message, void*) noexcept {
  Call* const call = static_cast<Call*>(argument);
  if (code != FRD_OK) call->outcome_ = {code, message};
  call->Arrive();
}

void Call::Arrive() {
  if (arrivals_.fetch_add(1) == 1) Complete();
}

Call::Outcome Call::TakeResults() {
  if (IsLikeInput(wish_.operation) || wish_.operation == FRD_BARRIER) return {};
  const uint32_t count = wish_.operation == FRD_JOIN       ? 1
                         : wish_.operation == FRD_ALLTOALL ? 2
                                                           : static_cast<uint32_t>(tensors_.size());
  for (uint32_t index = 0; index < count; ++index) {
    if (const Outcome taken = TakeResult(index); taken.code != FRD_OK) return taken;
  }
  return {};
}

Call::Outcome Call::TakeResult(uint32_t index) {
  frd_output result = {};
  result.struct_size = sizeof result;
  if (core->output(operation_, index, &result) != FRD_OK) return {FRD_INTERNAL, core->last_error()};
  frd_memory* const memory = core->keep(operation_, index);
  if (memory == nullptr) return {FRD_INTERNAL, "no memory for a result"};
  TfTensor* const output = tf.NewTensor(TfTypeOf(result.dtype), result.shape, result.dimension_count, result.data,
                                        result.size_bytes, &Drop, memory);
  outputs_.push_back(output);
  Status status;
  tf.SetOutput(context_, static_cast<int>(index), output, status);
  return status.ok() ? Outcome{} : Outcome{FRD_INTERNAL, status.message()};
}

void Call::TellFailure() {
  Status status(TfCodeOf(outcome_.code), outcome_.message);
  tf.OpKernelContext_Failure(context_, status);
}

void Call::Complete() {
  if (outcome_.code == FRD_OK) outcome_ = TakeResults();
  if (outcome_.code != FRD_OK) TellFailure();
  const std::function<void()> end = std::move(end_);
  delete this;  // before TensorFlow goes on, since it may end the process
  if (end) end();
}

}  // namespace farandole_tensorflow
