// Finds where the user's program made the call that is being submitted, for messages: "train.py:12".
//
// Every submission needs a place, and hardly any message shows it. So Python (call_sites.py) finds each place once, and
// then it is known by its code object and position: 50 ns instead of 200 in Python. All functions need the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace farandole {

// `place(frame, callee)`: "train.py:12", or "save_checkpoint at train.py:12"; None for a frame outside the user's
// program. `callee`: the frame that it has called; None where only an operation of that name can be.
void SetPlaceFunction(pybind11::object place);

// Sets *site to the place of the nearest frame of the user's program; "" where there is none. `above`: how many frames
// to skip, which are Farandole's. Returns false with a Python error set, from a signal handler that ran meanwhile
// (Ctrl-C, for example).
bool CallSite(int above, std::string* site);

}  // namespace farandole
