// Python stacks of all threads, looked at without the interpreter's lock: a rank that others wait for may hold it for
// long.
#pragma once

#include <string>

namespace farandole {

// Call once, with the lock held.
void PrepareToLookAtStacks();
// In the form of the standard library's faulthandler; "" where this Python does not offer it. Any thread.
std::string PythonStacks();

}  // namespace farandole
