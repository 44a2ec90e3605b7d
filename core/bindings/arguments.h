// Python's numbers into the core's words.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "common/status.h"
#include "common/types.h"
#include "engine/operation.h"

namespace farandole {

template <typename Enumeration>
Status ToEnumeration(int value, int count, const char* what, Enumeration* result) {
  if (value < 0 || value >= count) return Invalid(std::string("unknown ") + what + " " + std::to_string(value));
  *result = static_cast<Enumeration>(value);
  return Status::Ok();
}

// A wrong type or number sets a Python error, as usual.
bool IsTuple(PyObject* object, Py_ssize_t least, const char* what);
int ToInt(PyObject* number);

// One tensor of a call, (address to read, address to write, dtype, shape[, device, ready event]). False and a Python
// error.
bool ReadTensor(PyObject* call, Tensor* tensor);

}  // namespace farandole
