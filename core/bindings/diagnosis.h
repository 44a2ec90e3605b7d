// The functions through which the diagnosis in Python (_runtime/diagnosis) talks with the core.
#pragma once

#include <pybind11/pybind11.h>

namespace farandole {

void AddDiagnosisFunctions(pybind11::module_* module);

}  // namespace farandole
