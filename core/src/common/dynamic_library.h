// Libraries in this process: finds functions by their names, and finds a second copy of this library.
//
// The bindings refuse a second copy. Two copies would each believe that they are the process's only core: two engines
// would bind the same rendezvous name, and objects of one would be handed to the other. No state; the functions ask the
// dynamic linker, and any thread may call them.
#pragma once

#include <dlfcn.h>

#include <string>

namespace farandole {

// Fills in the `pointer` of each function, which is looked up by its `name`. Null when the library has all of them,
// else the name of one that it lacks.
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

// The file of another loaded object, not the one that holds this code, in which `symbol` is found; "" where there is
// none.
std::string PathOfOtherCopy(const char* symbol);

}  // namespace farandole
