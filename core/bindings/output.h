// Memory that the core has allocated for results, as Python sees it: the type `Output` of _core.pyi.
#pragma once

#include <pybind11/pybind11.h>

#include "operation/operation.h"

namespace farandole {

void AddOutputType(pybind11::module_* module);

pybind11::list ToPython(const std::vector<Output>& outputs);

}  // namespace farandole
