// The functions that Python calls, by ctypes. All return at once.
#include "failures.h"
#include "operators.h"
#include "torch_api.h"

namespace {

thread_local std::string t_text;

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

// What the calling thread's last call had to say.
EXPORTED const char* farandole_torch_text() { return t_text.c_str(); }

// Registers the kernels of the operators that Python has defined. `api` is the function table of farandole.h. Returns 0
// if that cannot be; the text says why. Called once.
EXPORTED int32_t farandole_torch_open(const frd_api* api) {
  t_text = farandole_torch::OpenTorch();
  if (!t_text.empty()) return 0;
  if (api->abi != FRD_ABI || api->struct_size < sizeof(frd_api)) {
    t_text = "the versions of farandole and farandole-torch differ; install the same version of both";
    return 0;
  }
  farandole_torch::core = api;
  t_text = farandole_torch::RegisterKernels();
  return t_text.empty() ? 1 : 0;
}

// The code of farandole.h of the operator's failure that `error` quotes, whose message is the text; or 0.
EXPORTED int32_t farandole_torch_code_of(const char* error) { return farandole_torch::CodeOf(error, &t_text); }

}  // extern "C"
