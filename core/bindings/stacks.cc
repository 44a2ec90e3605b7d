#include "bindings/stacks.h"

#include <Python.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "common/descriptor.h"

namespace farandole {
namespace {

// The function that faulthandler calls. It takes no lock and allocates nothing. It is looked up, since it is not part
// of the documented interface.
using DumpFunction = const char* (*)(int descriptor, PyInterpreterState* interpreter, PyThreadState* current);

DumpFunction g_dump = nullptr;
PyInterpreterState* g_interpreter = nullptr;

// A thread that runs Python releases the lock every 5 ms when another one asks for it.
constexpr std::chrono::milliseconds kPatience{200};

std::string Dump() {
  const Descriptor file(memfd_create("farandole-stacks", MFD_CLOEXEC));
  if (!file.valid()) return "";
  g_dump(file.get(), g_interpreter, nullptr);
  const off_t size = lseek(file.get(), 0, SEEK_END);
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

std::string WithoutCurrentThread(std::string text) {
  const size_t begin = text.find("Current thread");
  if (begin == std::string::npos) return text;
  const size_t end = text.find("\n\n", begin);
  return text.erase(begin, end == std::string::npos ? end : end + 2 - begin);
}

// Uses a thread of its own, since a request for the lock cannot be cancelled.
std::future<std::string> DumpWithLock() {
  std::promise<std::string> promise;
  std::future<std::string> text = promise.get_future();
  std::thread([promise = std::move(promise)]() mutable {
    const PyGILState_STATE state = PyGILState_Ensure();
    promise.set_value(WithoutCurrentThread(Dump()));
    PyGILState_Release(state);
  }).detach();
  return text;
}

}  // namespace

void PrepareToLookAtStacks() {
  g_dump = reinterpret_cast<DumpFunction>(dlsym(RTLD_DEFAULT, "_Py_DumpTracebackThreads"));
  g_interpreter = PyInterpreterState_Get();
}

std::string PythonStacks() {
  if (g_dump == nullptr || Py_IsInitialized() == 0) return "";
  std::future<std::string> text = DumpWithLock();
  if (text.wait_for(kPatience) == std::future_status::ready) return text.get();
  return Dump();  // a thread that keeps the lock so long is in C code, so stacks do not change
}

}  // namespace farandole
