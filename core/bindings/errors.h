// From Status to Python's exceptions. All with the GIL held.
#pragma once

#include <pybind11/pybind11.h>

#include <map>

#include "common/status.h"

namespace farandole {

// Which exception class is raised for each Code.
void SetErrorTypes(const std::map<int, pybind11::object>& types);

// As Python's own C functions do it: sets the exception, for the caller to return null.
void SetPythonError(const Status& status);
// As pybind11 does it.
[[noreturn]] void Raise(const Status& status);
inline void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}

}  // namespace farandole
