#include "operators.h"

#include <cstring>
#include <limits>
#include <utility>

#include "failures.h"
#include "orphans.h"
#include "torch_api.h"

namespace farandole_torch {
namespace {

// A tensor that PyTorch has handed over.
class OwnedTensor {
 public:
  explicit OwnedTensor(TorchValue value) : tensor_(reinterpret_cast<TorchTensor*>(value)) {}
  ~OwnedTensor() {
    if (tensor_ != nullptr) torch_api.delete_tensor_object(tensor_);
  }
  OwnedTensor(const OwnedTensor&) = delete;
  OwnedTensor& operator=(const OwnedTensor&) = delete;

  TorchTensor* get() const { return tensor_; }
  TorchTensor* Release() { return std::exchange(tensor_, nullptr); }

 private:
  TorchTensor* tensor_;
};

class OwnedOperation {
 public:
  OwnedOperation() = default;
  ~OwnedOperation() {
    if (operation_ != nullptr) core->release(operation_);
  }
  OwnedOperation(const OwnedOperation&) = delete;
  OwnedOperation& operator=(const OwnedOperation&) = delete;

  frd_operation* get() const { return operation_; }
  frd_operation** receive() { return &operation_; }
  frd_operation* Release() { return std::exchange(operation_, nullptr); }

 private:
  frd_operation* operation_ = nullptr;
};

constexpr size_t kElementBytes[] = {1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 1, 4, 8, 8, 16};  // by the core's number

// Numbers that no set, rank or reduction has become one that none has, either.
int32_t ToInt(TorchValue value) {
  const auto number = static_cast<int64_t>(value);
  constexpr int32_t kNone = std::numeric_limits<int32_t>::min();
  return number == static_cast<int32_t>(number) ? static_cast<int32_t>(number) : kNone;
}

// The memory of a tensor. An operator needs no rows.
struct Vector {
  void* data = nullptr;
  int64_t count = 0;
  int32_t dtype = -1;
};

// Returns null, or why the core cannot use the tensor.
const char* ReadVector(const OwnedTensor& tensor, Vector* vector) {
  int32_t torch_dtype = -1;
  bool is_contiguous = false;
  if (torch_api.get_dtype(tensor.get(), &torch_dtype) != 0 ||
      torch_api.is_contiguous(tensor.get(), &is_contiguous) != 0 ||
      torch_api.get_numel(tensor.get(), &vector->count) != 0 ||
      torch_api.get_data_ptr(tensor.get(), &vector->data) != 0) {
    return "the tensor has no memory of its own";
  }
  vector->dtype = CoreDType(torch_dtype);
  if (!is_contiguous) return "the tensor is not contiguous: pass contiguous(), and copy the result back";
  if (vector->dtype < 0) return "tensors of this dtype cannot be reduced or sent: convert them with to()";
  return nullptr;
}

// Fails the call on all ranks: the others would wait for this one.
[[noreturn]] void Refuse(int32_t process_set, const char* site, const std::string& why) {
  const std::string message = std::string(site) + ": " + why;
  core->refuse(process_set, /*name=*/nullptr, site, why.c_str());
  Fail(FRD_INVALID, message);
}

// A blocking call of the core with one tensor.
class Call {
 public:
  // `site`: what messages call the place in the program; a constant.
  Call(const char* site, int32_t operation, TorchValue process_set) : site_(site) {
    tensor_.struct_size = sizeof(tensor_);
    tensor_.shape = &count_;
    tensor_.dimension_count = 1;
    request.struct_size = sizeof(request);
    request.operation = operation;
    request.tensors = &tensor_;
    request.tensor_count = 1;
    request.prescale = request.postscale = 1.0;
    request.process_set = ToInt(process_set);
    request.site = site;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Writes the result over the input.
  void RunInPlace(OwnedTensor* tensor) {
    Read(*tensor, &tensor_, &count_);
    tensor_.output = const_cast<void*>(tensor_.input);
    OwnedOperation operation;
    Run(tensor, &operation);
  }

  // Copies the result, whose memory is the core's, into `output`.
  void RunInto(const OwnedTensor& output, OwnedTensor* input) {
    frd_tensor target{};
    int64_t target_count = 0;
    Read(output, &target, &target_count);
    Read(*input, &tensor_, &count_);
    if (target.dtype != tensor_.dtype) Refuse("input and output differ in dtype");
    OwnedOperation operation;
    Run(input, &operation);
    frd_output result{};
    result.struct_size = sizeof(result);
    if (const int32_t code = core->output(operation.get(), 0, &result); code != FRD_OK) Fail(code, core->last_error());
    if (result.shape[0] != target_count) {
      Fail(FRD_INVALID, std::string(site_) + ": the result has " + std::to_string(result.shape[0]) +
                            " elements, and output " + std::to_string(target_count));
    }
    if (result.size_bytes > 0) std::memcpy(const_cast<void*>(target.input), result.data, result.size_bytes);
  }

  frd_request request{};

 private:
  [[noreturn]] void Refuse(const std::string& why) const { farandole_torch::Refuse(request.process_set, site_, why); }

  void Read(const OwnedTensor& from, frd_tensor* tensor, int64_t* count) const {
    Vector vector;
    if (const char* const problem = ReadVector(from, &vector); problem != nullptr) Refuse(problem);
    tensor->dtype = vector.dtype;
    tensor->input = vector.data;
    *count = vector.count;
  }

  // `tensor`: whose memory the core uses.
  void Run(OwnedTensor* tensor, OwnedOperation* operation) const {
    const int32_t code = core->run_within_limit(&request, operation->receive());
    if (code == FRD_OK) return;
    const std::string message = core->last_error();
    if (operation->get() != nullptr) KeepUntilEnded(operation->Release(), {tensor->Release()});
    Fail(code, message);
  }

  const char* const site_;
  int64_t count_ = 0;
  frd_tensor tensor_{};
};

// ---- kernels for tensors on the host. The schemas are in operators.py

void AllReduce(TorchValue* stack, uint64_t, uint64_t) {
  OwnedTensor tensor(stack[0]);
  Call call("torch.ops.farandole.all_reduce_", FRD_ALLREDUCE, stack[2]);
  call.request.reduce = ToInt(stack[1]);
  call.RunInPlace(&tensor);
}

void AllGatherInto(TorchValue* stack, uint64_t, uint64_t) {
  OwnedTensor output(stack[0]), input(stack[1]);
  Call call("torch.ops.farandole.all_gather_into", FRD_ALLGATHER, stack[2]);
  call.RunInto(output, &input);
}

void ReduceScatterInto(TorchValue* stack, uint64_t, uint64_t) {
  OwnedTensor output(stack[0]), input(stack[1]);
  Call call("torch.ops.farandole.reduce_scatter_into", FRD_REDUCESCATTER, stack[3]);
  call.request.reduce = ToInt(stack[2]);
  call.RunInto(output, &input);
}

void AllToAll(TorchValue* stack, uint64_t, uint64_t) {
  OwnedTensor output(stack[0]), input(stack[1]);
  Call call("torch.ops.farandole.all_to_all", FRD_ALLTOALL, stack[2]);
  call.RunInto(output, &input);
}

void Broadcast(TorchValue* stack, uint64_t, uint64_t) {
  OwnedTensor tensor(stack[0]);
  Call call("torch.ops.farandole.broadcast_", FRD_BROADCAST, stack[2]);
  call.request.root = ToInt(stack[1]);
  call.RunInPlace(&tensor);
}

// Sends or receives. No other rank has to be told of a wrong tensor: it may wait for another message.
void Pass(const char* site, int32_t (*begin)(const frd_message*, frd_transfer**), TorchValue* stack) {
  const OwnedTensor tensor(stack[0]);
  Vector vector;
  if (const char* const problem = ReadVector(tensor, &vector); problem != nullptr)
    Fail(FRD_INVALID, std::string(site) + ": " + problem);
  frd_message message{};
  message.struct_size = sizeof(message);
  message.dtype = vector.dtype;
  message.data = vector.data;
  message.size_bytes = static_cast<size_t>(vector.count) * kElementBytes[vector.dtype];
  message.peer = ToInt(stack[1]);
  message.tag = stack[2];
  message.process_set = ToInt(stack[3]);
  frd_transfer* transfer = nullptr;
  int32_t code = begin(&message, &transfer);
  std::string problem = code == FRD_OK ? "" : core->last_error();
  if (code == FRD_OK) {
    code = core->wait_transfer(transfer, -1);
    if (code != FRD_OK) problem = core->last_error();
    core->end_transfer(transfer);
  }
  if (code == FRD_IN_PROGRESS) {
    const std::string peer =
        message.peer == FRD_ANY_SOURCE ? "no rank took" : "rank " + std::to_string(message.peer) + " did not take";
    Fail(FRD_DEADLINE, std::string(site) + ": " + peer + " part within the timeout of the group");
  }
  if (code != FRD_OK) Fail(code, problem);
}

void Send(TorchValue* stack, uint64_t, uint64_t) { Pass("torch.ops.farandole.send", core->send, stack); }

void Recv(TorchValue* stack, uint64_t, uint64_t) { Pass("torch.ops.farandole.recv", core->receive, stack); }

// ---- kernels for other tensors. Of every operator the tensors are the first arguments, and the group is the last

// A tensor that has no data: torch.compile asks what an operator would return.
template <int kTensors>
void DoNothing(TorchValue* stack, uint64_t, uint64_t) {
  for (int i = 0; i < kTensors; ++i) const OwnedTensor tensor(stack[i]);
}

constexpr const char* kNotOnCpu =
    "the tensor is not on the CPU: use torch.distributed with the backend farandole for tensors on a GPU";

template <int kTensors>
void RefuseDevice(TorchValue* stack, uint64_t argument_count, uint64_t) {
  const int32_t process_set = ToInt(stack[argument_count - 1]);
  DoNothing<kTensors>(stack, 0, 0);
  Refuse(process_set, "torch.ops.farandole", kNotOnCpu);
}

void RefuseDeviceOfMessage(TorchValue* stack, uint64_t, uint64_t) {
  DoNothing<1>(stack, 0, 0);
  Fail(FRD_INVALID, std::string("torch.ops.farandole: ") + kNotOnCpu);
}

struct Operator {
  const char* name;
  TorchKernel on_host, without_data, on_device;
};

constexpr Operator kOperators[] = {
    {"all_reduce_", &AllReduce, &DoNothing<1>, &RefuseDevice<1>},
    {"all_gather_into", &AllGatherInto, &DoNothing<2>, &RefuseDevice<2>},
    {"reduce_scatter_into", &ReduceScatterInto, &DoNothing<2>, &RefuseDevice<2>},
    {"all_to_all", &AllToAll, &DoNothing<2>, &RefuseDevice<2>},
    {"broadcast_", &Broadcast, &DoNothing<1>, &RefuseDevice<1>},
    {"send", &Send, &DoNothing<1>, &RefuseDeviceOfMessage},
    {"recv", &Recv, &DoNothing<1>, &RefuseDeviceOfMessage},
};

bool Register(const char* key, TorchKernel Operator::* kernel) {
  TorchLibrary* library = nullptr;  // stays, as kernels do
  if (torch_api.library_init_impl("farandole", key, __FILE__, __LINE__, &library) != 0) return false;
  for (const Operator& each : kOperators) {
    if (torch_api.library_impl(library, each.name, each.*kernel) != 0) return false;
  }
  return true;
}

}  // namespace

const frd_api* core = nullptr;

std::string RegisterKernels() {
  const bool fine = Register("CPU", &Operator::on_host) && Register("Meta", &Operator::without_data) &&
                    Register("CUDA", &Operator::on_device);
  return fine ? "" : "PyTorch refuses the kernels";
}

}  // namespace farandole_torch
