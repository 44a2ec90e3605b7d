// Functions of a library that is opened at run time, found by their names. Any thread.
#pragma once

#include <dlfcn.h>

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

}  // namespace farandole
