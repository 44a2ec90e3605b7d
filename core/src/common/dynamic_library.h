// Libraries in this process: finds functions by their names, and finds a second copy of this library.
//
// The bindings refuse a second copy. Two copies would each believe that they are the process's only core: two engines
// would bind the same rendezvous name, and objects of one would be handed to the other. No state; the functions ask the
// dynamic linker, and any thread may call them.
#pragma once

#include <dlfcn.h>

#include <string>

namespace farandole {

// Looks up each function by its `name` and stores its `pointer`. Returns null when the library has all of them, else
// the name of one that it lacks.
template <typename... Functions>
const char* LookUp(void* library, Functions*... functions) {
  const char* missing = nullptr;
  const auto look_up = [&](auto* function) {
    function->pointer = reinterpret_cast<decltype(function->pointer)>(dlsym(library, function->name));
    if (function->pointer == nullptr) missing = function->name;
  };
  (look_up(functions), ...);
  return missing;
}

// The file of the shared object (or program) that holds this code.
std::string PathOfThisCopy();

// The file of a loaded object, other than the one that holds this code, in which `symbol` is found; "" if there is
// none.
std::string PathOfOtherCopy(const char* symbol);

}  // namespace farandole
