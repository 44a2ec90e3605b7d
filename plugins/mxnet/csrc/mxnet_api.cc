#include "mxnet_api.h"

#include <dlfcn.h>

namespace farandole_mxnet {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) *missing = name;
  return *function != nullptr;
}

}  // namespace

MxApi mx;

std::string OpenMxNet(const char* path) {
  void* library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return std::string("MXNet's library ") + path + " is not loaded";
  std::string missing;
  const bool found = Find(library, "MXGetVersion", &mx.GetVersion, &missing) &&
                     Find(library, "MXGetLastError", &mx.GetLastError, &missing) &&
                     Find(library, "MXEnginePushAsyncND", &mx.EnginePushAsyncND, &missing) &&
                     Find(library, "MXNDArrayGetShapeEx64", &mx.NDArrayGetShapeEx64, &missing) &&
                     Find(library, "MXNDArrayGetDType", &mx.NDArrayGetDType, &missing) &&
                     Find(library, "MXNDArrayGetContext", &mx.NDArrayGetContext, &missing) &&
                     Find(library, "MXNDArrayGetStorageType", &mx.NDArrayGetStorageType, &missing) &&
                     Find(library, "MXNDArrayToDLPack", &mx.NDArrayToDLPack, &missing) &&
                     Find(library, "MXNDArrayCallDLPackDeleter", &mx.NDArrayCallDLPackDeleter, &missing) &&
                     Find(library, "MXShallowCopyNDArray", &mx.ShallowCopyNDArray, &missing) &&
                     Find(library, "MXNDArrayFree", &mx.NDArrayFree, &missing);
  return found ? "" : std::string("MXNet's library ") + path + " has no " + missing;
}

}  // namespace farandole_mxnet
