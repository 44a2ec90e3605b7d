#include "transport/mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <map>
#include <mutex>
#include <string>

namespace farandole {
namespace {

Status Map(int memfd, size_t size_bytes, std::byte** data) {
  void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (memory == MAP_FAILED) return SystemError("mapping " + std::to_string(size_bytes >> 20) + " MB of shared memory");
  // A forked child (a data loader, say) has no business here.
  madvise(memory, size_bytes, MADV_DONTFORK);
  *data = static_cast<std::byte*>(memory);
  return Status::Ok();
}

#ifdef FRD_ONE_MAPPING

struct Mapping {
  std::byte* data = nullptr;
  int users = 0;
};
std::mutex g_mutex;
std::map<ino_t, Mapping>& Mappings() {
  static auto* const mappings = new std::map<ino_t, Mapping>();  // never destroyed: threads may outlive statics
  return *mappings;
}

#endif

}  // namespace

#ifdef FRD_ONE_MAPPING

// All memfds lie in one file system of the kernel, and an inode in use is not used again.
Status MapShared(int memfd, size_t size_bytes, std::byte** data) {
  struct stat facts{};
  if (fstat(memfd, &facts) != 0) return SystemError("fstat of shared memory");
  std::lock_guard<std::mutex> lock(g_mutex);
  Mapping& mapping = Mappings()[facts.st_ino];
  if (mapping.users == 0) FRD_RETURN_IF_ERROR(Map(memfd, size_bytes, &mapping.data));
  ++mapping.users;
  *data = mapping.data;
  return Status::Ok();
}

void UnmapShared(std::byte* data, size_t size_bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (auto each = Mappings().begin(); each != Mappings().end(); ++each) {
    if (each->second.data != data) continue;
    if (--each->second.users > 0) return;
    munmap(data, size_bytes);
    Mappings().erase(each);
    return;
  }
}

#else

Status MapShared(int memfd, size_t size_bytes, std::byte** data) { return Map(memfd, size_bytes, data); }
void UnmapShared(std::byte* data, size_t size_bytes) { munmap(data, size_bytes); }

#endif

}  // namespace farandole
