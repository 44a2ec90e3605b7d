// Libraries in this process: opens each once, finds functions by their names, and finds a second copy of this library.
//
// The bindings refuse a second copy. Two copies would each believe that they are the process's only core: two engines
// would bind the same rendezvous name, and objects of one would be handed to the other. Any thread may call.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "common/status.h"

namespace farandole {

// Sets *value to what the first call with this key has made, from `arguments` and by `open`. It is never destroyed,
// since at exit other threads may still use it. An error is not kept. Each place that calls has values of its own.
template <typename Key, typename Value, typename Open, typename... Arguments>
Status OpenOnce(const Key& key, Value** value, Open open, Arguments&&... arguments) {
  static auto* const mutex = new std::mutex();
  static auto* const opened = new std::map<Key, std::unique_ptr<Value>>();
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Value>& known = (*opened)[key];
  if (!known) {
    auto fresh = std::make_unique<std::remove_const_t<Value>>(arguments...);
    FRD_RETURN_IF_ERROR(open(fresh.get()));
    known = std::move(fresh);
  }
  *value = known.get();
  return Status::Ok();
}

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

// A loaded object: the program or a shared library.
struct LoadedObject {
  const void* base = nullptr;
  std::string path;
};

inline LoadedObject ObjectOf(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return {};
  return {info.dli_fbase, info.dli_fname != nullptr ? info.dli_fname : ""};
}

// The address of g_here identifies the object that holds this code. As it is hidden, the dynamic linker does not
// replace it by that of another copy.
__attribute__((visibility("hidden"))) inline const char g_here = 0;

// The file of the shared object (or program) that holds this code.
inline std::string PathOfThisCopy() { return ObjectOf(&g_here).path; }

// The file of a loaded object, other than the one that holds this code, in which `symbol` is found; "" if there is
// none.
inline std::string PathOfOtherCopy(const char* symbol) {
  const LoadedObject own = ObjectOf(&g_here);
  // All names are collected before any object is searched: dl_iterate_phdr holds a lock that dlopen may take.
  std::vector<std::string> names;
  const auto add_name = [](dl_phdr_info* info, size_t, void* to) {
    if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0')
      static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(add_name, &names);
  for (const std::string& name : names) {
    void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const void* const address = dlsym(handle, symbol);
    // dlsym also searches the libraries that the object depends on, and this copy may be one of them.
    const LoadedObject found = address != nullptr ? ObjectOf(address) : own;
    dlclose(handle);
    if (found.base != own.base) return found.path;
  }
  return "";
}

}  // namespace farandole
