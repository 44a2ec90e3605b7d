// The fake driver for tests in Python, by ctypes: what they cannot say in the driver's own words.
#include <cstdio>

#include "support/fake_cuda.h"

#define PYTHON_CALL extern "C" __attribute__((visibility("default")))

PYTHON_CALL farandole::FakeCuda* fake_cuda();

PYTHON_CALL void fake_cuda_set_delay(int microseconds) {
  fake_cuda()->SetDelay(std::chrono::microseconds(microseconds));
}
PYTHON_CALL void fake_cuda_own_everything(int ordinal) { fake_cuda()->OwnEverything(ordinal); }
PYTHON_CALL void fake_cuda_set_capturing(int capturing) { fake_cuda()->SetCapturing(capturing != 0); }
PYTHON_CALL void fake_cuda_fail(const char* call, int code) { fake_cuda()->Fail(call, code); }
PYTHON_CALL void* fake_cuda_make_stream(int ordinal) { return fake_cuda()->MakeStream(ordinal); }
PYTHON_CALL void* fake_cuda_record(void* stream) { return fake_cuda()->RecordNewEvent(stream); }
PYTHON_CALL void fake_cuda_synchronize(void* stream) { fake_cuda()->Synchronize(stream); }
PYTHON_CALL void* fake_cuda_contents(void* memory) { return fake_cuda()->Contents(memory); }
// In the stream: copies, and so shows when the stream has come to there.
PYTHON_CALL void fake_cuda_copy(void* stream, void* to, const void* from, size_t size_bytes) {
  fake_cuda()->Launch(stream, [=] { __builtin_memcpy(to, from, size_bytes); });
}
PYTHON_CALL int fake_cuda_calls(const char* name) { return fake_cuda()->calls(name); }
PYTHON_CALL int fake_cuda_misuses() {
  for (const std::string& misuse : fake_cuda()->misuses())
    std::fprintf(stderr, "misuse of the driver: %s\n", misuse.c_str());
  return static_cast<int>(fake_cuda()->misuses().size());
}
