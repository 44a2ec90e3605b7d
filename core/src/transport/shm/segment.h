// Memory that the ranks of one machine share.
//
// A segment is a memfd. A memfd has no name, so nothing is left behind after SIGKILL, the size of /dev/shm does not
// matter, and only ranks that receive its descriptor can open it. Its size is sealed, because a peer that shrinks the
// file under a reader would cause SIGBUS. The receiver checks the seals before it maps the file. Pages are zero and use
// no memory until first touched.
//
// ShmNode owns its node's segment. Move-only; the mapping lives as long as the SharedSegment. One thread at a time uses
// an object; the data in the memory have their own rules.
//
// Two ranks see a segment at two addresses. This also holds for ranks that are threads of one test, so tests detect a
// pointer that was written into shared memory by mistake. The thread sanitizer, however, identifies memory by its
// address and would miss races between such ranks, so in its builds a process maps each memfd only once.
#pragma once

#include <cstddef>

#include "common/descriptor.h"
#include "common/status.h"

#if defined(__SANITIZE_THREAD__)
#define FRD_ONE_MAPPING true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FRD_ONE_MAPPING true
#endif
#endif
#ifndef FRD_ONE_MAPPING
#define FRD_ONE_MAPPING false
#endif

namespace farandole {

class SharedSegment {
 public:
  SharedSegment() = default;
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  // Makes a fresh, zeroed segment. kInternal names the size if the machine lacks the memory.
  static Status Create(size_t size_bytes, SharedSegment* segment);
  // Maps a segment that another rank made, and takes over its descriptor. kMismatch: its size or seals are not as
  // agreed.
  static Status Attach(Descriptor memfd, size_t size_bytes, SharedSegment* segment);

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  int descriptor() const { return memfd_.get(); }
  // Called once all members have the segment. The mapping does not need the descriptor, and a forked child that
  // inherits it would keep the memory alive.
  void CloseDescriptor() { memfd_.Reset(); }

 private:
  Status Map(Descriptor memfd, size_t size_bytes);

  Descriptor memfd_;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

Status MapShared(int memfd, size_t size_bytes, std::byte** data);
// REQUIRES: MapShared mapped `data` with this size.
void UnmapShared(std::byte* data, size_t size_bytes);

}  // namespace farandole
