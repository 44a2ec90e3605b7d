// Where the bytes of a memfd lie in this process.
//
// Two ranks see an arena at two addresses, and so do ranks that are threads of one test: a pointer that strays into
// shared memory is found. The thread sanitizer, however, knows memory by its address, and would see no race between
// such ranks. So in its builds a process maps a memfd once, however often it is asked for. Any thread.
#pragma once

#include <cstddef>

#include "common/status.h"

#if defined(__SANITIZE_THREAD__)
#define FRD_ONE_MAPPING 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FRD_ONE_MAPPING 1
#endif
#endif

namespace farandole {

Status MapShared(int memfd, size_t size_bytes, std::byte** data);
// REQUIRES: mapped by MapShared with this size.
void UnmapShared(std::byte* data, size_t size_bytes);

}  // namespace farandole
