// An MXNet with GPUs that are none, for tests: a library that stands before libmxnet, which it needs, and whose arrays
// of the context cpu(1) say that they lie on gpu(0), those of cpu(2) on gpu(1).
#include <dlfcn.h>

extern "C" __attribute__((visibility("default"))) int MXNDArrayGetContext(void* array, int* device_type,
                                                                          int* device_id) {
  constexpr int kCpu = 1, kGpu = 2;
  static void* const mxnet = dlopen("libmxnet.so", RTLD_NOLOAD | RTLD_LAZY);  // by its name, as it is in the process
  static auto* const plain = reinterpret_cast<int (*)(void*, int*, int*)>(dlsym(mxnet, "MXNDArrayGetContext"));
  const int code = plain(array, device_type, device_id);
  if (code != 0 || *device_type != kCpu || *device_id == 0) return code;
  *device_type = kGpu;
  --*device_id;
  return code;
}
