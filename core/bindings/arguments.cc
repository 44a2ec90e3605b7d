#include "bindings/arguments.h"

#include "bindings/errors.h"

namespace farandole {

bool IsTuple(PyObject* object, Py_ssize_t least, const char* what) {
  if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) >= least) return true;
  PyErr_Format(PyExc_TypeError, "%s must be a tuple, not shorter than %zd", what, least);
  return false;
}

int ToInt(PyObject* number) {
  const long value = PyLong_AsLong(number);
  if (value == static_cast<int>(value)) return static_cast<int>(value);
  PyErr_SetString(PyExc_OverflowError, "a number does not fit into 32 bits");
  return -1;
}

bool ReadTensor(PyObject* call, Tensor* tensor) {
  if (!IsTuple(call, 4, "call")) return false;
  PyObject* const shape = PyTuple_GET_ITEM(call, 3);
  if (!IsTuple(shape, 0, "the shape")) return false;
  tensor->input = PyLong_AsVoidPtr(PyTuple_GET_ITEM(call, 0));
  tensor->output = PyLong_AsVoidPtr(PyTuple_GET_ITEM(call, 1));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i)
    tensor->shape.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)));
  if (PyTuple_GET_SIZE(call) >= 6) {
    tensor->device = ToInt(PyTuple_GET_ITEM(call, 4));
    tensor->ready_event = PyLong_AsVoidPtr(PyTuple_GET_ITEM(call, 5));
  }
  const Status status = ToEnumeration(ToInt(PyTuple_GET_ITEM(call, 2)), kDTypeCount, "dtype", &tensor->dtype);
  if (PyErr_Occurred()) return false;
  if (!status.ok()) SetPythonError(status);
  return status.ok();
}

}  // namespace farandole
