#include "operators.h"

#include <cstring>
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

int32_t ToInt(TorchValue value) { return static_cast<int32_t>(static_cast<int64_t>(value)); }

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

  // As a vector, since an operator needs no rows.
  void Read(const OwnedTensor& from, frd_tensor* tensor, int64_t* count) const {
    int32_t torch_dtype = -1;
    bool is_contiguous = false;
    void* data = nullptr;
    if (torch_api.get_dtype(from.get(), &torch_dtype) != 0 ||
        torch_api.is_contiguous(from.get(), &is_contiguous) != 0 || torch_api.get_numel(from.get(), count) != 0 ||
        torch_api.get_data_ptr(from.get(), &data) != 0) {
      Refuse("the tensor has no memory of its own");
    }
    if (!is_contiguous) Refuse("the tensor is not contiguous: pass contiguous(), and copy the result back");
    tensor->dtype = CoreDType(torch_dtype);
    if (tensor->dtype < 0) Refuse("tensors of this dtype cannot be reduced or sent: convert them with to()");
    tensor->input = data;
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

// ---- kernels for other tensors. Of every operator the tensors are the first arguments, and the group is the last

// A tensor that has no data: torch.compile asks what an operator would return.
template <int kTensors>
void DoNothing(TorchValue* stack, uint64_t, uint64_t) {
  for (int i = 0; i < kTensors; ++i) const OwnedTensor tensor(stack[i]);
}

template <int kTensors>
void RefuseDevice(TorchValue* stack, uint64_t argument_count, uint64_t) {
  const int32_t process_set = ToInt(stack[argument_count - 1]);
  DoNothing<kTensors>(stack, 0, 0);
  Refuse(process_set, "torch.ops.farandole",
         "the tensor is not on the CPU: use torch.distributed with the backend farandole for tensors on a GPU");
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
