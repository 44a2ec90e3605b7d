// Sums for a library that Farandole carries, such as torch.distributed: `carry` of _core.pyi, which takes the place of
// a method of a process group. The frames of a function in Python would take 0.4 us, as long as the sum.
#pragma once

#include <pybind11/pybind11.h>

namespace farandole {

// Returns false with a Python error set when there is no memory.
bool AddCarryFunction(PyObject* module);

}  // namespace farandole
