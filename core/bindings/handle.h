// Python's handle of an operation: the type `Handle` of _core.pyi.
//
// Written against Python's C interface: with pybind11, making a handle and waiting with it take longer than the core
// needs for a small operation (figures in one.h). All functions need the GIL, and release it while they wait.
#pragma once

#include <pybind11/pybind11.h>

#include "engine/engine.h"

namespace farandole {

constexpr int64_t kSignalIntervalMs = 100;  // of waiting, between two checks for signals (Ctrl-C)

// Releases the GIL for a scope.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// Returns false with a Python error set when there is no memory.
bool AddHandleType(PyObject* module);

// Makes a handle. It keeps both objects alive until the operation is done, even if it is dropped before, and its wait()
// returns `result`.
PyObject* NewHandle(std::shared_ptr<Engine> engine, OperationPtr operation, PyObject* source, PyObject* result);

// Returns false with a Python error set, from a signal handler or the operation.
bool WaitFor(PyObject* handle);

// Releases what handles kept that were dropped before their operation was done; looks at `most` of them.
void ReleaseOrphans(size_t most = 8);

}  // namespace farandole
