#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "common/failpoint.h"

namespace farandole {
namespace {

// The seals keep every rank from resizing the file, so no access can fall beyond its end.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) UnmapShared(data_, size_bytes_);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : memfd_(std::move(other.memfd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(memfd_, other.memfd_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

Status SharedSegment::Create(size_t size_bytes, SharedSegment* segment) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("segment.create"));
  Descriptor memfd(memfd_create("farandole", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.valid()) return SystemError("memfd_create");
  if (ftruncate(memfd.get(), static_cast<off_t>(size_bytes)) != 0) {
    return SystemError("sizing shared memory to " + std::to_string(size_bytes >> 20) + " MB");
  }
  if (fcntl(memfd.get(), F_ADD_SEALS, kSeals) != 0) return SystemError("sealing shared memory");
  return segment->Map(std::move(memfd), size_bytes);
}

Status SharedSegment::Attach(Descriptor memfd, size_t size_bytes, SharedSegment* segment) {
  FRD_RETURN_IF_ERROR(FRD_FAILPOINT_STATUS("segment.attach"));
  struct stat facts{};
  if (fstat(memfd.get(), &facts) != 0) return SystemError("fstat of received shared memory");
  const int seals = fcntl(memfd.get(), F_GET_SEALS);
  if (facts.st_size != static_cast<off_t>(size_bytes) || seals < 0 || (seals & kSeals) != kSeals) {
    return Status(Code::kMismatch, "received shared memory of ", facts.st_size, " bytes with seals ", seals,
                  ", expected ", size_bytes, " bytes sealed against resizing");
  }
  return segment->Map(std::move(memfd), size_bytes);
}

Status SharedSegment::Map(Descriptor memfd, size_t size_bytes) {
  FRD_RETURN_IF_ERROR(MapShared(memfd.get(), size_bytes, &data_));
  memfd_ = std::move(memfd);
  size_bytes_ = size_bytes;
  return Status::Ok();
}

namespace {

Status Map(int memfd, size_t size_bytes, std::byte** data) {
  void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (memory == MAP_FAILED) return SystemError("mapping " + std::to_string(size_bytes >> 20) + " MB of shared memory");
  // A forked child, such as a data loader, must not touch the memory of its parent's node.
  madvise(memory, size_bytes, MADV_DONTFORK);
  *data = static_cast<std::byte*>(memory);
  return Status::Ok();
}

// The mappings of this process by inode, in builds that map each memfd once. The inode identifies the memfd: all memfds
// are in one file system of the kernel, and an inode in use is not reused. The lock is needed because ranks that are
// threads may map at any time.
struct Mapping {
  std::byte* data = nullptr;
  int users = 0;
};
std::mutex g_mutex;
std::map<ino_t, Mapping>& Mappings() {
  static auto* const mappings = new std::map<ino_t, Mapping>();  // never destroyed: threads may outlive statics
  return *mappings;
}

Status MapOnce(int memfd, size_t size_bytes, std::byte** data) {
  struct stat facts{};
  if (fstat(memfd, &facts) != 0) return SystemError("fstat of shared memory");
  std::lock_guard<std::mutex> lock(g_mutex);
  Mapping& mapping = Mappings()[facts.st_ino];
  if (mapping.users == 0) FRD_RETURN_IF_ERROR(Map(memfd, size_bytes, &mapping.data));
  ++mapping.users;
  *data = mapping.data;
  return Status::Ok();
}

void UnmapOnce(std::byte* data, size_t size_bytes) {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (auto each = Mappings().begin(); each != Mappings().end(); ++each) {
    if (each->second.data != data) continue;
    if (--each->second.users > 0) return;
    munmap(data, size_bytes);
    Mappings().erase(each);
    return;
  }
}

}  // namespace

Status MapShared(int memfd, size_t size_bytes, std::byte** data) {
  return FRD_ONE_MAPPING ? MapOnce(memfd, size_bytes, data) : Map(memfd, size_bytes, data);
}

void UnmapShared(std::byte* data, size_t size_bytes) {
  FRD_ONE_MAPPING ? UnmapOnce(data, size_bytes) : static_cast<void>(munmap(data, size_bytes));
}

}  // namespace farandole
