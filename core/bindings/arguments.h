// Converts Python's numbers into the core's types.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "common/status.h"
#include "common/types.h"
#include "operation/request.h"

namespace farandole {

template <typename Enumeration>
Status ToEnumeration(int value, int count, const char* what, Enumeration* result) {
  if (value < 0 || value >= count) return Invalid(std::string("unknown ") + what + " " + std::to_string(value));
  *result = static_cast<Enumeration>(value);
  return Status::Ok();
}

// A wrong type or number sets a Python error.
bool IsTuple(PyObject* object, Py_ssize_t least, const char* what);
int ToInt(PyObject* number);

// The dimensions of a tensor, while its view points at them.
class Dimensions {
 public:
  Span<int64_t> Take(size_t count) {
    if (count > kFew) many_.resize(count);
    return {count > kFew ? many_.data() : few_, count};
  }

 private:
  static constexpr size_t kFew = 8;
  int64_t few_[kFew];
  std::vector<int64_t> many_;
};

// Reads one tensor of a call, (address to read, address to write, dtype, shape[, device, ready event]). Returns false
// with a Python error set.
bool ReadTensor(PyObject* call, Dimensions* dimensions, TensorView* tensor);

// Reads the kind of an operation and its `parameters`, (name, reduce, root, prescale, postscale, process set), into the
// view, which points into them. Returns false with a Python error set.
bool ReadParameters(PyObject* op, PyObject* parameters, RequestView* request);

}  // namespace farandole
