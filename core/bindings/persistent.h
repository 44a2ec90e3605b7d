// A prepared operation: `Persistent` of _core.pyi. It reads once from Python's objects all that `run_one` reads in each
// call.
#pragma once

#include <pybind11/pybind11.h>

namespace farandole {

// Returns false with a Python error set when there is no memory.
bool AddPersistentType(PyObject* module);

}  // namespace farandole
