// A prepared operation: `Persistent` of _core.pyi. What a call of `run_one` reads from Python's objects is read once.
#pragma once

#include <pybind11/pybind11.h>

namespace farandole {

// Returns false with a Python error set when there is no memory.
bool AddPersistentType(PyObject* module);

}  // namespace farandole
