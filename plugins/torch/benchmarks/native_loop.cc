// Sums in a loop, as compiled code calls them: through PyTorch's dispatcher, and of the core alone. Compiled and called
// by operators.py.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "farandole/farandole.h"

namespace {

struct Tensor;

template <typename Function>
Function* Find(const char* name, Function*) {
  static void* const library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

using FromBlob = int32_t(void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, Tensor**);
using NewHandle = int32_t(Tensor*, Tensor**);
using Delete = int32_t(Tensor*);
using Dispatch = int32_t(const char*, const char*, uint64_t*);

}  // namespace

extern "C" {

// Both sum `count` elements in place, `times` times, and return 0 if that succeeds.
int32_t sum_by_dispatcher(void* data, int64_t count, int32_t torch_dtype, int64_t times) {
  static FromBlob* const from_blob = Find<FromBlob>("aoti_torch_create_tensor_from_blob", nullptr);
  static NewHandle* const new_handle = Find<NewHandle>("aoti_torch_new_tensor_handle", nullptr);
  static Delete* const delete_tensor = Find<Delete>("aoti_torch_delete_tensor_object", nullptr);
  static Dispatch* const dispatch = Find<Dispatch>("aoti_torch_call_dispatcher", nullptr);
  const int64_t stride = 1;
  Tensor* tensor = nullptr;
  if (from_blob(data, 1, &count, &stride, 0, torch_dtype, /*cpu*/ 0, 0, &tensor) != 0) return 1;
  int32_t code = 0;
  for (int64_t i = 0; i < times && code == 0; ++i) {
    Tensor* argument = nullptr;  // which the call consumes
    new_handle(tensor, &argument);
    uint64_t stack[3] = {0, FRD_SUM, 0};
    std::memcpy(stack, &argument, sizeof argument);
    code = dispatch("farandole::all_reduce_", "", stack);
  }
  delete_tensor(tensor);
  return code;
}

int32_t sum_by_core(const frd_api* core, void* data, int64_t count, int32_t dtype, int64_t times) {
  frd_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = dtype;
  tensor.input = tensor.output = data;
  tensor.shape = &count;
  tensor.dimension_count = 1;
  frd_request request{};
  request.struct_size = sizeof request;
  request.operation = FRD_ALLREDUCE;
  request.tensors = &tensor;
  request.tensor_count = 1;
  request.prescale = request.postscale = 1.0;
  int32_t code = 0;
  for (int64_t i = 0; i < times && code == 0; ++i) code = core->run(&request, nullptr);
  return code;
}

}  // extern "C"
