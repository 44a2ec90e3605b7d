#include "common/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include <vector>

namespace farandole {
namespace {

// A loaded object: the program or a shared library.
struct Object {
  const void* base = nullptr;
  std::string path;
};

Object ObjectOf(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return {};
  return {info.dli_fbase, info.dli_fname != nullptr ? info.dli_fname : ""};
}

// The address of g_here identifies the object that holds this code. Internal linkage keeps the dynamic linker from
// replacing it by that of another copy.
const char g_here = 0;

int AddName(dl_phdr_info* info, size_t, void* names) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0')
    static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
  return 0;
}

}  // namespace

std::string PathOfThisCopy() { return ObjectOf(&g_here).path; }

std::string PathOfOtherCopy(const char* symbol) {
  const Object own = ObjectOf(&g_here);
  // All names are collected before any object is searched: dl_iterate_phdr holds a lock that dlopen may take.
  std::vector<std::string> names;
  dl_iterate_phdr(&AddName, &names);
  for (const std::string& name : names) {
    void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const void* const address = dlsym(handle, symbol);
    // dlsym also searches the libraries that the object depends on, and this copy may be one of them.
    const Object found = address != nullptr ? ObjectOf(address) : own;
    dlclose(handle);
    if (found.base != own.base) return found.path;
  }
  return "";
}

}  // namespace farandole
