// Submitting one tensor: `submit_one` and `run_one` of _core.pyi, which are called for every gradient.
//
// A small operation takes the core 0.3 us, and pybind11 five times that to convert a call's twelve arguments and to
// make the handle. So these two functions are written against Python's C interface.
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/memory.h"
#include "engine/engine.h"

namespace farandole {

// Never waits for other ranks, and nothing that holds the core's locks needs the GIL. Of a caller that waits next, a
// small operation is over at once where the others come within the first looks; then *operation stays null.
Status SubmitTo(Engine* engine, const RequestView& view, OperationPtr* operation, bool will_wait);

// `run_one`, with its arguments. our_frames: how many frames of Farandole's have called, see CallSite. May throw.
Look RunNow(PyObject* const* arguments, int our_frames);

// Returns false with a Python error set when there is no memory.
bool AddOneTensorFunctions(PyObject* module);

}  // namespace farandole
