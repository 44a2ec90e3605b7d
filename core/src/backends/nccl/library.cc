#include "backends/nccl/library.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "common/dynamic_library.h"

namespace farandole {
namespace {

constexpr char kSoname[] = "libnccl.so.2";

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

const char* LookUpAll(void* library, NcclLibrary* l) {
  return LookUp(library, &l->init, &l->get_error_string, &l->get_last_error, &l->get_unique_id, &l->get_async_error,
                &l->finalize, &l->destroy, &l->abort, &l->group_start, &l->group_end, &l->all_reduce, &l->broadcast,
                &l->all_gather, &l->reduce_scatter, &l->reduce, &l->send, &l->receive, &l->make_scaled_sum,
                &l->destroy_reduce);
}

void* OpenByOrder(const std::string& wanted) {
  if (!wanted.empty()) return dlopen(wanted.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (void* const present = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return present;
  return dlopen(kSoname, RTLD_NOW | RTLD_LOCAL);
}

Status Open(const std::string& wanted, NcclLibrary* library) {
  void* const opened = OpenByOrder(wanted);
  library->path = wanted.empty() ? kSoname : wanted;
  if (opened == nullptr) {
    return Invalid("NCCL cannot be opened: looked for " + library->path +
                   (wanted.empty() ? " in this process and where the system looks for libraries" : "") + " (" +
                   dlerror() +
                   "); `pip install nvidia-nccl-cu12` (or -cu13, as your framework's CUDA), set FARANDOLE_NCCL_LIB to "
                   "the path of libnccl.so.2, or take nccl out of FARANDOLE_BACKEND");
  }
  // The version first: an older library lacks functions, and then its age is what is to be said.
  if (const char* const missing = LookUp(opened, &library->get_version)) {
    return Invalid(library->path + " has no function " + missing +
                   ", so it is no NCCL; set FARANDOLE_NCCL_LIB to the path of libnccl.so.2");
  }
  const int code = library->get_version.pointer(&library->version);
  if (code != kNcclSuccess) {
    return Invalid(library->path + " does not say which NCCL it is: " + library->get_version.name + " gives " +
                   std::to_string(code) + "; set FARANDOLE_NCCL_LIB to the path of another libnccl.so.2");
  }
  if (library->version < kNcclLeastVersion) {
    return Invalid(library->path + " is " + library->name() + ", and " + VersionText(kNcclLeastVersion) +
                   " is the oldest that can be used; install a newer one and set FARANDOLE_NCCL_LIB to its path");
  }
  if (const char* const missing = LookUpAll(opened, library)) {
    return Invalid(library->path + " says that it is " + library->name() + " and has no function " + missing +
                   "; set FARANDOLE_NCCL_LIB to the path of a complete libnccl.so.2");
  }
  return Status::Ok();
}

}  // namespace

// Of 2.9 and later; older ones come out as an older version all the same.
std::string NcclLibrary::name() const { return "NCCL " + VersionText(version); }

Status NcclLibrary::Failed(const char* call, int code, NcclComm comm, const std::string& where) const {
  const char* const meaning = get_error_string.pointer(code);
  const char* const detail = get_last_error.pointer(comm);
  const bool has_detail = detail != nullptr && detail[0] != '\0';
  return Internal(std::string(call) + " of " + name() + " failed on " + where + ": " +
                  (meaning != nullptr ? meaning : "unknown error") + " (" + std::to_string(code) + ")" +
                  (has_detail ? std::string(", ") + detail : ""));
}

Status OpenNccl(const Settings& settings, const NcclLibrary** library) {
  const auto given = settings.libraries.find("nccl");
  const std::string wanted = given == settings.libraries.end() ? "" : given->second;
  // Never destroyed: at exit other threads may still use them.
  static auto* const mutex = new std::mutex();
  static auto* const opened = new std::map<std::string, std::unique_ptr<const NcclLibrary>>();
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<const NcclLibrary>& known = (*opened)[wanted];
  if (!known) {
    auto fresh = std::make_unique<NcclLibrary>();
    FRD_RETURN_IF_ERROR(Open(wanted, fresh.get()));
    known = std::move(fresh);
  }
  *library = known.get();
  return Status::Ok();
}

}  // namespace farandole
