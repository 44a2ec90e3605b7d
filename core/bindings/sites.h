// Where the user's program made the call that is being submitted, for messages: "train.py:12".
//
// Every submission asks, and hardly any message tells; so each place is found out once, by Python (_sites.py), and then
// known by its code object and position: 50 ns instead of 200 in Python. All with the GIL held.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace farandole {

// `place(frame)`: "train.py:12", or None where the frame is none of the user's.
void SetPlaceFunction(pybind11::object place);

// Of the nearest frame that is the user's; "" where there is none. `above`: how many frames are not looked at, since
// they are known to be ours. False and a Python error: what a handler of a signal raised meanwhile, Ctrl-C say.
bool CallSite(int above, std::string* site);

}  // namespace farandole
