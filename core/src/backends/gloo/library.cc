#include "backends/gloo/library.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

namespace farandole {
namespace {

constexpr char kFileName[] = "libfarandole_gloo.so";

// Beside the library or program that this code is part of, where the core's package has it.
std::string PathBesideUs() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OpenGloo), &info) == 0 || info.dli_fname == nullptr) return kFileName;
  const std::string ours = info.dli_fname;
  const size_t slash = ours.rfind('/');
  return slash == std::string::npos ? kFileName : ours.substr(0, slash + 1) + kFileName;
}

std::string PathOf(const Settings& settings) {
  const auto chosen = settings.libraries.find("gloo");
  return chosen != settings.libraries.end() && !chosen->second.empty() ? chosen->second : PathBesideUs();
}

Status Open(const std::string& path, const FrdGlooTable** table) {
  // Local: other copies of Gloo in the process, such as torch's, and this one are not to mix.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Invalid(
        std::string("the back end gloo needs ") + kFileName + ", which cannot be opened (" + dlerror() +
        "); install Gloo (Debian, Ubuntu: apt install libgloo-dev), build it from Farandole's sources (cmake -S "
        "core/gloo -B build && cmake --build build), and set FARANDOLE_GLOO_LIB to its path; or take gloo out of "
        "FARANDOLE_BACKEND");
  }
  const auto function = reinterpret_cast<FrdGlooTableFunction>(dlsym(library, FRD_GLOO_TABLE));
  const FrdGlooTable* const found = function != nullptr ? function() : nullptr;
  const bool fits = found != nullptr && found->abi == FRD_GLOO_ABI && found->struct_size >= sizeof(FrdGlooTable);
  if (!fits) {
    dlclose(library);
    return Invalid(path + (found == nullptr ? " is no " : " is another version's ") + kFileName +
                   "; build it from the sources of this version (core/gloo) and set FARANDOLE_GLOO_LIB to its path");
  }
  *table = found;
  return Status::Ok();
}

}  // namespace

Status OpenGloo(const Settings& settings, const FrdGlooTable** table) {
  static std::mutex mutex;
  static auto* const opened = new std::map<std::string, const FrdGlooTable*>();  // never destroyed: threads use them
  const std::string path = PathOf(settings);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = opened->find(path);
  if (known == opened->end()) {
    FRD_RETURN_IF_ERROR(Open(path, table));
    opened->emplace(path, *table);
    return Status::Ok();
  }
  *table = known->second;
  return Status::Ok();
}

}  // namespace farandole
