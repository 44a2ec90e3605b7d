#include "backends/backend.h"

namespace farandole {

size_t Work::TotalBytes() const {
  size_t total = 0;
  for (const Segment& segment : segments) total += segment.size_bytes;
  return total;
}

}  // namespace farandole
