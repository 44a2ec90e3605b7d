// Sums for a library that Farandole carries, such as torch.distributed: `carry` of _core.pyi, which replaces the method
// of a process group. Python would take 1 us for what it asks, three times as long as the sum.
#pragma once

#include <pybind11/pybind11.h>

namespace farandole {

// Returns false with a Python error set when there is no memory.
bool AddCarryFunction(PyObject* module);

}  // namespace farandole
