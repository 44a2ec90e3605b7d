#include "backends/nccl/rows.h"

#include <algorithm>
#include <functional>

#include "backends/nccl/meaning.h"

namespace farandole {
namespace {

bool AllEqual(const std::vector<size_t>& sizes) {
  return std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
}

}  // namespace

void Rows::Gather() const {
  if (AllEqual(task.rank_bytes))
    return calls->Add(nccl.all_gather, from, to, task.rank_bytes[0], NcclType::kUint8, comm, stream);
  size_t at = 0;
  for (size_t p = 0; p < task.rank_bytes.size(); at += task.rank_bytes[p++]) {
    if (task.rank_bytes[p] == 0) continue;
    const bool is_mine = static_cast<int>(p) == task.set->position;
    calls->Add(nccl.broadcast, is_mine ? from : to + at, to + at, task.rank_bytes[p], NcclType::kUint8,
               static_cast<int>(p), comm, stream);
  }
}

void Rows::Exchange() const {
  size_t sent = 0, received = 0;
  for (size_t p = 0; p < task.send_bytes.size(); ++p) {
    const auto peer = static_cast<int>(p);
    if (task.send_bytes[p] > 0)
      calls->Add(nccl.send, from + sent, task.send_bytes[p], NcclType::kUint8, peer, comm, stream);
    if (task.recv_bytes[p] > 0)
      calls->Add(nccl.receive, to + received, task.recv_bytes[p], NcclType::kUint8, peer, comm, stream);
    sent += task.send_bytes[p];
    received += task.recv_bytes[p];
  }
}

// A rank that is not the root of a reduction gets nothing by it.
void Rows::Scatter(const NcclReduction& reduction) const {
  const NcclType type = NcclTypeOf(task.dtype);
  const size_t item_bytes = SizeOf(task.dtype);
  if (AllEqual(task.rank_bytes)) {
    return calls->Add(nccl.reduce_scatter, from, to, task.rank_bytes[0] / item_bytes, type, reduction, comm, stream);
  }
  size_t at = 0;
  for (size_t p = 0; p < task.rank_bytes.size(); at += task.rank_bytes[p++]) {
    if (task.rank_bytes[p] == 0) continue;
    calls->Add(nccl.reduce, from + at, to, task.rank_bytes[p] / item_bytes, type, reduction, static_cast<int>(p), comm,
               stream);
  }
}

}  // namespace farandole
