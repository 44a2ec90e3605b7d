// The part of PyTorch that the plugin uses: functions of its stable C interface, declared here and looked up in the
// libtorch that Python has loaded.
//
// PyTorch 2.9 and later have them all. Declarations of our own, instead of PyTorch's headers, let one binary serve all.
// Constant after OpenTorch; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace farandole_torch {

// An argument or a result of an operator: a whole number, or a TorchTensor*.
using TorchValue = uint64_t;
struct TorchTensor;
struct TorchLibrary;

// Owns the tensors among the arguments. May throw what is derived from std::exception.
using TorchKernel = void (*)(TorchValue* stack, uint64_t argument_count, uint64_t result_count);

// All return 0, or another number if they fail.
struct TorchApi {
  int32_t (*get_data_ptr)(TorchTensor* tensor, void** data);
  int32_t (*get_numel)(TorchTensor* tensor, int64_t* count);
  int32_t (*get_dtype)(TorchTensor* tensor, int32_t* dtype);
  int32_t (*is_contiguous)(TorchTensor* tensor, bool* answer);
  int32_t (*delete_tensor_object)(TorchTensor* tensor);
  int32_t (*library_init_impl)(const char* name_space, const char* key, const char* file, uint32_t line,
                               TorchLibrary** library);
  int32_t (*library_impl)(TorchLibrary* library, const char* name, TorchKernel kernel);
};

// The functions; valid after OpenTorch.
extern TorchApi torch_api;

// Looks the functions up in libtorch, which must be loaded. Returns "", or why it cannot be used.
std::string OpenTorch();

// The core's number of PyTorch's element type, or -1 if the core does not have it.
int32_t CoreDType(int32_t torch_dtype);

}  // namespace farandole_torch
