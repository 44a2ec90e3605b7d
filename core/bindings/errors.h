// Converts a Status into a Python exception. All functions need the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <map>
#include <new>

#include "common/status.h"

namespace farandole {

// Sets the exception class for each Code.
void SetErrorTypes(const std::map<int, pybind11::object>& types);

// Sets the exception, for a caller that returns null, as Python's own C functions do.
void SetPythonError(const Status& status);
// Likewise of a call that has come to the engine, so that Python need not refuse it (_api/refusals.py).
void SetCallError(const Status& status);
// Throws the exception, as pybind11 does.
[[noreturn]] void Raise(const Status& status);
inline void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}

// Calls a function that returns a new reference, or null with a Python error set, and lets no C++ exception out. It is
// not noexcept: when the interpreter ends, Python unwinds each thread that asks for the GIL.
template <typename Body>
PyObject* WithoutCppExceptions(Body body) {
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
    error.restore();
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

}  // namespace farandole
