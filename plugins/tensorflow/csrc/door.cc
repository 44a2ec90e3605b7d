// What Python calls, by ctypes. Nothing here waits.
#include <cstdlib>
#include <string>

#include "call.h"
#include "completion.h"
#include "from_xla.h"
#include "operations.h"

namespace {

// TensorFlow notices what is registered while it loads the library, and makes Python functions of it. So what Python
// has to say before stands in the environment.
std::string Load() {
  const std::string missing = farandole_tensorflow::OpenTensorFlow();
  if (!missing.empty()) return missing;
  const char* const device = std::getenv("FARANDOLE_TENSORFLOW_DEVICE");
  const std::string given = device == nullptr ? "" : device;
  // The CPU's memory is a device's in tests only.
  if (!given.empty() && given != "GPU" && given != "CPU" && given != "none") {
    return "FARANDOLE_TENSORFLOW_DEVICE is '" + given + "'; it may be GPU or none";
  }
  return farandole_tensorflow::RegisterOperations(device);
}

const std::string load_problem = Load();

}  // namespace

extern "C" {

#define DOOR __attribute__((visibility("default")))

// "" or why the operations could not be registered.
DOOR const char* farandole_tensorflow_problem() { return load_problem.c_str(); }

// `core` is the function table of farandole.h. 0 when it is another version's; to be called before any operation.
DOOR int32_t farandole_tensorflow_open(const frd_api* core) {
  if (core->abi != FRD_ABI || core->struct_size < sizeof(frd_api)) return 0;
  farandole_tensorflow::core = core;
  return 1;
}

// 0 when operations hold a thread of TensorFlow until they have ended.
DOOR int32_t farandole_tensorflow_is_asynchronous() { return farandole_tensorflow::CanTakeCompletions() ? 1 : 0; }

// Operations may be called from what XLA compiles. "" or why they cannot.
DOOR const char* farandole_tensorflow_use_xla() {
  static const std::string problem = farandole_tensorflow::UseXla();
  return problem.c_str();
}

// From now on they do; for tests.
DOOR void farandole_tensorflow_block() { farandole_tensorflow::TakeNoCompletions(); }

}  // extern "C"
