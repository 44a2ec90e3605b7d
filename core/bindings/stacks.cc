#include "bindings/stacks.h"

#include <Python.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/descriptor.h"

namespace farandole {
namespace {

// What faulthandler calls in a signal handler. It takes no lock and allocates nothing; while the program runs on, a
// line number may be a little old. Looked up, since it is not a part of the documented interface.
using DumpFunction = const char* (*)(int descriptor, PyInterpreterState* interpreter, PyThreadState* current);

DumpFunction g_dump = nullptr;
PyInterpreterState* g_interpreter = nullptr;

}  // namespace

void PrepareToLookAtStacks() {
  g_dump = reinterpret_cast<DumpFunction>(dlsym(RTLD_DEFAULT, "_Py_DumpTracebackThreads"));
  g_interpreter = PyInterpreterState_Get();
}

std::string PythonStacks() {
  if (g_dump == nullptr) return "";
  const Descriptor file(memfd_create("farandole-stacks", MFD_CLOEXEC));
  if (!file.valid()) return "";
  g_dump(file.get(), g_interpreter, nullptr);
  const off_t size = lseek(file.get(), 0, SEEK_END);
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

}  // namespace farandole
