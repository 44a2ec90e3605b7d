// The functions that Python calls, by ctypes. All return at once, except the two that say so.
#include "call.h"
#include "errors.h"

namespace {

thread_local std::string t_text;

int32_t Report(const farandole_mxnet::Outcome& outcome) {
  t_text = outcome.message;
  return outcome.code;
}

}  // namespace

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

// The message of the calling thread's last code other than FRD_OK.
EXPORTED const char* farandole_mxnet_text() { return t_text.c_str(); }

// `core` is the function table of farandole.h. Python calls this once, before everything else.
EXPORTED int32_t farandole_mxnet_open(const char* library, const frd_api* core) {
  if (const std::string missing = farandole_mxnet::OpenMxNet(library); !missing.empty()) {
    return Report({FRD_INTERNAL, missing});
  }
  if (core->abi != FRD_ABI || core->struct_size < sizeof(frd_api)) {
    return Report(
        {FRD_INTERNAL, "the versions of farandole and farandole-mxnet differ; install the same version of both"});
  }
  farandole_mxnet::core = core;
  return FRD_OK;
}

EXPORTED int32_t farandole_mxnet_make_room_for_errors(void* scratch) {
  const std::string error = farandole_mxnet::MakeRoomForErrors(scratch);
  return error.empty() ? FRD_OK : Report({FRD_INTERNAL, error});
}

EXPORTED int32_t farandole_mxnet_push(int32_t operation, int32_t count, void** inputs, void** outputs, const char* name,
                                      int32_t reduce, int32_t root, double prescale, double postscale,
                                      int32_t process_set, const char* site, int32_t priority, int32_t is_gradient,
                                      int32_t takes_device_memory) {
  try {
    const farandole_mxnet::Wish wish = {operation,
                                        reduce,
                                        root,
                                        process_set,
                                        prescale,
                                        postscale,
                                        name,
                                        site,
                                        priority,
                                        is_gradient != 0,
                                        takes_device_memory != 0};
    return Report(farandole_mxnet::Call::Push(wish, inputs, outputs, count));
  } catch (const std::exception& error) {
    return Report({FRD_INTERNAL, error.what()});
  }
}

// The code of the failure after which training cannot go on, or FRD_OK.
EXPORTED int32_t farandole_mxnet_failure() {
  return farandole_mxnet::HasFailed() ? Report(farandole_mxnet::Failure()) : FRD_OK;
}

EXPORTED int32_t farandole_mxnet_lost_gradient() { return farandole_mxnet::HasLostGradient() ? 1 : 0; }

EXPORTED void farandole_mxnet_close() { farandole_mxnet::CloseCalls(); }

// These wait: 1 when all pushed calls have begun (ended), 0 when the time was over before.
EXPORTED int32_t farandole_mxnet_await_begun(int64_t limit_ms) {
  return farandole_mxnet::CallOrder().AwaitBegun(limit_ms) ? 1 : 0;
}
EXPORTED int32_t farandole_mxnet_await_ended(int64_t limit_ms) {
  return farandole_mxnet::CallOrder().AwaitEnded(limit_ms) ? 1 : 0;
}

}  // extern "C"
