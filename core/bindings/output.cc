#include "bindings/output.h"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace farandole {
namespace {

struct PyOutput {
  Output output;
};

}  // namespace

void AddOutputType(py::module_* module) {
  py::class_<PyOutput>(*module, "Output", py::buffer_protocol())
      .def_property_readonly("shape", [](const PyOutput& self) { return py::tuple(py::cast(self.output.shape)); })
      .def_property_readonly("dtype", [](const PyOutput& self) { return static_cast<int>(self.output.dtype); })
      .def_property_readonly("address",
                             [](const PyOutput& self) { return reinterpret_cast<uintptr_t>(self.output.memory.get()); })
      .def_property_readonly("on_device", [](const PyOutput& self) { return self.output.device != nullptr; })
      .def_property_readonly("nbytes", [](const PyOutput& self) { return self.output.size_bytes; })
      .def_buffer([](PyOutput& self) {
        if (self.output.device != nullptr) throw py::buffer_error("the result lies on a device");
        return py::buffer_info(reinterpret_cast<uint8_t*>(self.output.memory.get()),
                               static_cast<py::ssize_t>(self.output.size_bytes));
      });
}

py::list ToPython(const std::vector<Output>& outputs) {
  py::list list;
  for (const Output& output : outputs) list.append(py::cast(PyOutput{output}));
  return list;
}

}  // namespace farandole
