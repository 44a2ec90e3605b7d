#include "collectives/task.h"

#include <numeric>

namespace farandole {
namespace {

size_t Sum(const std::vector<size_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), size_t{0}); }

}  // namespace

size_t Task::TotalBytes() const {
  size_t total = 0;
  for (const Segment& segment : segments) total += segment.size_bytes;
  return total;
}

size_t Task::ResultBytes() const {
  if (!AllocatesOutput(kind)) return TotalBytes();
  if (TakesSplits(kind)) return Sum(recv_bytes);
  return RowsDiffer(kind) ? Sum(rank_bytes) : rank_bytes[static_cast<size_t>(set->position)];
}

}  // namespace farandole
