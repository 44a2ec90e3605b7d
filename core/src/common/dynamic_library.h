// Libraries in this process: functions that are found by their names, and a second copy of this library, which is
// refused. Two copies would each believe that they are the process's only core: two engines that bind the same
// rendezvous name, two loops, objects of one handed to the other. Asks the dynamic linker; any thread may call.
#pragma once

#include <dlfcn.h>

#include <string>

namespace farandole {

// Each `function` has a `name` and takes a `pointer`. Null when the library has all, else the name of one that is not
// there.
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

// The file of a loaded object, other than the one that holds this code, in which `symbol` is found; "" where there is
// none.
std::string PathOfOtherCopy(const char* symbol);

}  // namespace farandole
