// Converts errors into Python's, and Python's arguments into the core's types.
#include <array>
#include <new>
#include <string_view>

#include "bindings/bindings.h"

namespace farandole {
namespace {

std::array<PyObject*, 8> g_error_types{};

// Sets the attribute `operations` of a MismatchError: the operations that the ranks called, if they differ.
void SetMismatchError(PyObject* type, const Status& status) {
  pybind11::set names;
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    if ((status.kinds() >> kind & 1U) != 0) names.add(NameOf(static_cast<OpKind>(kind)));
  }
  pybind11::object error = pybind11::handle(type)(status.message());
  error.attr("operations") = pybind11::frozenset(names);
  PyErr_SetObject(type, error.ptr());
}

// A wrong type or number sets a Python error.
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

bool RaiseUnlessOk(const Status& status) {
  if (PyErr_Occurred()) return false;
  if (!status.ok()) SetPythonError(status);
  return status.ok();
}

// Returns an empty view on a Python error.
std::string_view ToView(PyObject* text) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text, &size);
  return bytes != nullptr ? std::string_view(bytes, static_cast<size_t>(size)) : std::string_view();
}

}  // namespace

// ---- errors

void SetErrorTypes(const std::map<int, pybind11::object>& types) {
  for (const auto& [kind, type] : types) {
    if (kind > 0 && kind < static_cast<int>(g_error_types.size()))
      g_error_types[static_cast<size_t>(kind)] = type.inc_ref().ptr();
  }
}

void SetPythonError(const Status& status) {
  PyObject* const type = g_error_types[static_cast<size_t>(status.code())];
  if (type != nullptr && status.kinds() != 0) return SetMismatchError(type, status);
  PyErr_SetString(type != nullptr ? type : PyExc_RuntimeError, status.message().c_str());
}

void SetCallError(const Status& status) {
  SetPythonError(status);
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  if (PyObject_SetAttrString(error, "others_know", Py_True) != 0) PyErr_Clear();
  PyErr_Restore(type, error, traceback);
}

PyObject* SetCaughtError() {
  try {
    throw;
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

void Raise(const Status& status) {
  SetPythonError(status);
  throw pybind11::error_already_set();
}

// ---- arguments

bool ReadTensor(PyObject* call, Dimensions* dimensions, TensorView* tensor) {
  if (!IsTuple(call, 4, "call")) return false;
  PyObject* const shape = PyTuple_GET_ITEM(call, 3);
  if (!IsTuple(shape, 0, "the shape")) return false;
  tensor->input = PyLong_AsVoidPtr(PyTuple_GET_ITEM(call, 0));
  tensor->output = PyLong_AsVoidPtr(PyTuple_GET_ITEM(call, 1));
  const Span<int64_t> extents = dimensions->Take(static_cast<size_t>(PyTuple_GET_SIZE(shape)));
  for (size_t i = 0; i < extents.size(); ++i)
    extents[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, static_cast<Py_ssize_t>(i)));
  tensor->shape = {extents.begin(), extents.size()};
  if (PyTuple_GET_SIZE(call) >= 6) {
    tensor->device = ToInt(PyTuple_GET_ITEM(call, 4));
    tensor->ready_event = PyLong_AsVoidPtr(PyTuple_GET_ITEM(call, 5));
  }
  return RaiseUnlessOk(ToEnumeration(ToInt(PyTuple_GET_ITEM(call, 2)), kDTypeCount, "dtype", &tensor->dtype));
}

bool ReadParameters(PyObject* op, PyObject* parameters, RequestView* request) {
  if (!IsTuple(parameters, 6, "parameters")) return false;
  Status status = ToEnumeration(ToInt(op), kOpKindCount, "operation", &request->kind);
  request->name = ToView(PyTuple_GET_ITEM(parameters, 0));
  if (status.ok())
    status = ToEnumeration(ToInt(PyTuple_GET_ITEM(parameters, 1)), kReduceOpCount, "reduction", &request->reduce);
  request->root = ToInt(PyTuple_GET_ITEM(parameters, 2));
  request->prescale = PyFloat_AsDouble(PyTuple_GET_ITEM(parameters, 3));
  request->postscale = PyFloat_AsDouble(PyTuple_GET_ITEM(parameters, 4));
  request->process_set = ToInt(PyTuple_GET_ITEM(parameters, 5));
  return RaiseUnlessOk(status);
}

}  // namespace farandole
