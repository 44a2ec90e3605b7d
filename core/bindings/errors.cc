#include "bindings/errors.h"

#include <array>

#include "common/types.h"

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

}  // namespace

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

void Raise(const Status& status) {
  SetPythonError(status);
  throw pybind11::error_already_set();
}

}  // namespace farandole
