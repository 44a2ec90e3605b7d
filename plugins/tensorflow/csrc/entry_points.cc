// The functions that Python calls, by ctypes. None of them waits.
#include <cstdlib>
#include <string>

#include "call.h"
#include "completion.h"
#include "from_xla.h"
#include "operations.h"

namespace {

// TensorFlow sees which operations are registered while it loads the library, and makes Python functions of them. So
// Python passes its settings in the environment before.
std::string Load() {
  const std::string missing = farandole_tensorflow::OpenTensorFlow();
  if (!missing.empty()) return missing;
  const char* const device = std::getenv("FARANDOLE_TENSORFLOW_DEVICE");
  const std::string given = device == nullptr ? "" : device;
  // Only tests treat the CPU's memory as a device's.
  if (!given.empty() && given != "GPU" && given != "CPU" && given != "none") {
    return "FARANDOLE_TENSORFLOW_DEVICE is '" + given + "'; it may be GPU or none";
  }
  return farandole_tensorflow::RegisterOperations(device);
}

const std::string load_problem = Load();

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

// Returns "", or why the operations could not be registered.
EXPORTED const char* farandole_tensorflow_problem() { return load_problem.c_str(); }

// `core` is the function table of farandole.h. Returns 0 when it is another version's. Python calls this before any
// operation.
EXPORTED int32_t farandole_tensorflow_open(const frd_api* core) {
  if (core->abi != FRD_ABI || core->struct_size < sizeof(frd_api)) return 0;
  farandole_tensorflow::core = core;
  return 1;
}

// Returns 0 when operations hold a thread of TensorFlow until they have ended.
EXPORTED int32_t farandole_tensorflow_is_asynchronous() { return farandole_tensorflow::CanTakeCompletions() ? 1 : 0; }

// Lets code that XLA compiles call operations. Returns "", or why that is not possible.
EXPORTED const char* farandole_tensorflow_use_xla() {
  static const std::string problem = farandole_tensorflow::UseXla();
  return problem.c_str();
}

// From now on operations hold a thread until they have ended; for tests.
EXPORTED void farandole_tensorflow_block() { farandole_tensorflow::TakeNoCompletions(); }

}  // extern "C"
