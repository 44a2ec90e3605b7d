// Python stacks of all threads, also of a program that is stuck in C code and keeps the interpreter's lock.
#pragma once

#include <string>

namespace farandole {

// Call once, with the lock held.
void PrepareToLookAtStacks();
// In the form of the standard library's faulthandler; "" where this Python does not offer it. Any thread; takes a fifth
// of a second at most.
std::string PythonStacks();

}  // namespace farandole
