#include "torch_api.h"

#include <dlfcn.h>

#include "farandole/farandole.h"

namespace farandole_torch {
namespace {

constexpr const char* kLibrary = "libtorch_cpu.so";

struct DType {
  const char* name;
  int32_t core;
};

constexpr DType kDTypes[] = {
    {"uint8", FRD_UINT8},     {"int8", FRD_INT8},           {"uint16", FRD_UINT16},
    {"int16", FRD_INT16},     {"int32", FRD_INT32},         {"int64", FRD_INT64},
    {"float16", FRD_FLOAT16}, {"bfloat16", FRD_BFLOAT16},   {"float32", FRD_FLOAT32},
    {"float64", FRD_FLOAT64}, {"bool", FRD_BOOL},           {"uint32", FRD_UINT32},
    {"uint64", FRD_UINT64},   {"complex64", FRD_COMPLEX64}, {"complex128", FRD_COMPLEX128},
};

constexpr int32_t kMaxDTypes = 64;  // of PyTorch, which has 45
int8_t core_dtypes[kMaxDTypes];     // by PyTorch's number; 1 more than the core's

template <typename Function>
bool Find(void* library, const std::string& name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
  if (*function == nullptr) *missing = name;
  return *function != nullptr;
}

bool FindDTypes(void* library, std::string* missing) {
  for (const DType& dtype : kDTypes) {
    int32_t (*number)() = nullptr;
    if (!Find(library, std::string("aoti_torch_dtype_") + dtype.name, &number, missing)) return false;
    if (const int32_t found = number(); found >= 0 && found < kMaxDTypes)
      core_dtypes[found] = static_cast<int8_t>(dtype.core + 1);
  }
  return true;
}

}  // namespace

TorchApi torch_api;

std::string OpenTorch() {
  void* const library = dlopen(kLibrary, RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return std::string("PyTorch has not loaded ") + kLibrary;
  std::string missing;
  const bool found = Find(library, "aoti_torch_get_data_ptr", &torch_api.get_data_ptr, &missing) &&
                     Find(library, "aoti_torch_get_numel", &torch_api.get_numel, &missing) &&
                     Find(library, "aoti_torch_get_dtype", &torch_api.get_dtype, &missing) &&
                     Find(library, "aoti_torch_is_contiguous", &torch_api.is_contiguous, &missing) &&
                     Find(library, "aoti_torch_delete_tensor_object", &torch_api.delete_tensor_object, &missing) &&
                     Find(library, "aoti_torch_library_init_impl", &torch_api.library_init_impl, &missing) &&
                     Find(library, "aoti_torch_library_impl", &torch_api.library_impl, &missing) &&
                     FindDTypes(library, &missing);
  return found ? "" : std::string("PyTorch's ") + kLibrary + " has no " + missing;
}

int32_t CoreDType(int32_t torch_dtype) {
  return torch_dtype >= 0 && torch_dtype < kMaxDTypes ? core_dtypes[torch_dtype] - 1 : -1;
}

}  // namespace farandole_torch
