#include "bindings/errors.h"

#include <array>

namespace farandole {
namespace {

std::array<PyObject*, 8> g_error_types{};

}  // namespace

void SetErrorTypes(const std::map<int, pybind11::object>& types) {
  for (const auto& [kind, type] : types) {
    if (kind > 0 && kind < static_cast<int>(g_error_types.size()))
      g_error_types[static_cast<size_t>(kind)] = type.inc_ref().ptr();
  }
}

void SetPythonError(const Status& status) {
  PyObject* const type = g_error_types[static_cast<size_t>(status.code())];
  PyErr_SetString(type != nullptr ? type : PyExc_RuntimeError, status.message().c_str());
}

void Raise(const Status& status) {
  SetPythonError(status);
  throw pybind11::error_already_set();
}

}  // namespace farandole
