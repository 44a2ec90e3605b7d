// Where the memory of Python's arrays and tensors is.
//
// Python's own ways take longer than a small operation: numpy's dictionary 3 us, torch's methods together 0.5 us. Two
// C interfaces take 40 to 50 ns: `__array_struct__`, of numpy's array interface, and `__dlpack_c_exchange_api__`, of
// DLPack 1.3.
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/arguments.h"
#include "common/types.h"
#include "operation/request.h"

namespace farandole {

// How a look at Python's objects ended.
enum class Look { kFine, kUnusable, kError };  // kError: a Python error is set

// Describes an operation from `source` into `target` as a tensor. kUnusable where they are not of one type, element
// type and shape, or not contiguous memory of the host. The memory is that of the objects, and lives as long as they.
Look LookAtArrays(PyObject* source, PyObject* target, Dimensions* dimensions, TensorView* tensor);

}  // namespace farandole
