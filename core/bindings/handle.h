// What Python holds of an operation: the type `Handle` of _core.pyi.
//
// Written against Python's C interface: with pybind11, making a handle and waiting with it take longer than the core
// needs for a small operation (figures in one.h). All with the GIL held, which is released while a call waits.
#pragma once

#include <pybind11/pybind11.h>

#include "engine/engine.h"

namespace farandole {

constexpr int64_t kSignalIntervalMs = 100;  // of waiting, between two looks for signals (Ctrl-C)

// For a scope in which other Python threads may run.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// False and a Python error: no memory.
bool AddHandleType(PyObject* module);

// A new handle, which keeps both objects alive until the operation is done, even if it is dropped before, and returns
// `result` when it is waited for.
PyObject* NewHandle(std::shared_ptr<Engine> engine, OperationPtr operation, PyObject* source, PyObject* result);

// False and a Python error: a signal's, or the operation's.
bool WaitFor(PyObject* handle);

// Lets go of what handles kept that were dropped before their operation was done; looks at so many of them.
void ReleaseOrphans(size_t most = 8);

}  // namespace farandole
