#include "tf_api.h"

#include <dlfcn.h>

namespace farandole_tensorflow {
namespace {

// Each function is in one of the two, depending on the version.
constexpr const char* kLibraries[] = {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"};

void* Find(const char* name) {
  for (const char* library : kLibraries) {
    void* const handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
    if (handle == nullptr) continue;
    if (void* const found = dlsym(handle, name)) return found;
  }
  return dlsym(RTLD_DEFAULT, name);
}

}  // namespace

TfApi tf;

std::string OpenTensorFlow() {
  std::string missing;
#define FARANDOLE_TF_FIND(result, name, parameters)                    \
  tf.name = reinterpret_cast<result(*) parameters>(Find("TF_" #name)); \
  if (tf.name == nullptr) missing = "TF_" #name;
  FARANDOLE_TF_FUNCTIONS(FARANDOLE_TF_FIND)
#undef FARANDOLE_TF_FIND
  return missing.empty() ? "" : "this TensorFlow has no " + missing;
}

}  // namespace farandole_tensorflow
