// The kernels of torch.ops.farandole, whose schemas Python has (operators.py).
//
// Every operator blocks until its result is there. It calls the core as an unnamed operation, so that it is paired with
// those of the other ranks by its order among the unnamed calls of its process set, whoever makes them. A call takes a
// process set's number, no names: converting a string would take longer than the rest.
#pragma once

#include <string>

#include "farandole/farandole.h"

namespace farandole_torch {

extern const frd_api* core;  // set before RegisterKernels

// Registers the kernels with PyTorch, once. Returns "", or why that failed. REQUIRES: OpenTorch.
std::string RegisterKernels();

}  // namespace farandole_torch
