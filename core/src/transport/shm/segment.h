// Memory that the ranks of one machine share.
//
// A memfd has no name, so nothing stays behind after SIGKILL, /dev/shm may be as small as it likes, and nobody else can
// open it. Its size is sealed (nobody can shrink it under a reader, which would be SIGBUS); the receiver checks the
// seals before it maps. Pages are zero until first touched, and cost nothing until then. Move-only; the mapping lives
// as long as the SharedSegment. An object belongs to one thread at a time; what lies in the memory has its own rules.
//
// Two ranks see a segment at two addresses, and so do ranks that are threads of one test: a pointer that strays into
// shared memory is found. The thread sanitizer, however, knows memory by its address, and would see no race between
// such ranks. So in its builds a process maps a memfd once, however often it is asked for.
#pragma once

#include <cstddef>

#include "common/descriptor.h"
#include "common/status.h"

#if defined(__SANITIZE_THREAD__)
#define FRD_ONE_MAPPING 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FRD_ONE_MAPPING 1
#endif
#endif

namespace farandole {

class SharedSegment {
 public:
  SharedSegment() = default;
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  // A fresh segment of ours, zeroed. kInternal names the size when the machine has not got the memory.
  static Status Create(size_t size_bytes, SharedSegment* segment);
  // A segment made by another rank. Takes the descriptor. kMismatch when its size or its seals are not as agreed.
  static Status Attach(Descriptor memfd, size_t size_bytes, SharedSegment* segment);

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  int descriptor() const { return memfd_.get(); }
  // The mapping needs no descriptor; a forked child that inherits one would keep the memory alive.
  void CloseDescriptor() { memfd_.Reset(); }

 private:
  Status Map(Descriptor memfd, size_t size_bytes);

  Descriptor memfd_;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

Status MapShared(int memfd, size_t size_bytes, std::byte** data);
// REQUIRES: mapped by MapShared with this size.
void UnmapShared(std::byte* data, size_t size_bytes);

}  // namespace farandole
