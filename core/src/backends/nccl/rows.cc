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

Status Rows::Gather() const {
  const NcclComm comm = communicator.handle();
  if (AllEqual(work.rank_bytes))
    return communicator.Call(nccl.all_gather, from, to, work.rank_bytes[0], NcclType::kUint8, comm, stream);
  size_t at = 0;
  for (size_t p = 0; p < work.rank_bytes.size(); at += work.rank_bytes[p++]) {
    if (work.rank_bytes[p] == 0) continue;
    const bool is_mine = static_cast<int>(p) == work.set->position;
    FRD_RETURN_IF_ERROR(communicator.Call(nccl.broadcast, is_mine ? from : to + at, to + at, work.rank_bytes[p],
                                          NcclType::kUint8, static_cast<int>(p), comm, stream));
  }
  return Status::Ok();
}

Status Rows::Exchange() const {
  const NcclComm comm = communicator.handle();
  size_t sent = 0, received = 0;
  for (size_t p = 0; p < work.send_bytes.size(); ++p) {
    const auto peer = static_cast<int>(p);
    if (work.send_bytes[p] > 0)
      FRD_RETURN_IF_ERROR(
          communicator.Call(nccl.send, from + sent, work.send_bytes[p], NcclType::kUint8, peer, comm, stream));
    if (work.recv_bytes[p] > 0)
      FRD_RETURN_IF_ERROR(
          communicator.Call(nccl.receive, to + received, work.recv_bytes[p], NcclType::kUint8, peer, comm, stream));
    sent += work.send_bytes[p];
    received += work.recv_bytes[p];
  }
  return Status::Ok();
}

// A rank that is not the root of a reduction gets nothing by it.
Status Rows::Scatter(NcclReduce reduce) const {
  const NcclComm comm = communicator.handle();
  const NcclType type = NcclTypeOf(work.dtype);
  const size_t item_bytes = SizeOf(work.dtype);
  if (AllEqual(work.rank_bytes)) {
    return communicator.Call(nccl.reduce_scatter, from, to, work.rank_bytes[0] / item_bytes, type, reduce, comm,
                             stream);
  }
  size_t at = 0;
  for (size_t p = 0; p < work.rank_bytes.size(); at += work.rank_bytes[p++]) {
    if (work.rank_bytes[p] == 0) continue;
    FRD_RETURN_IF_ERROR(communicator.Call(nccl.reduce, from + at, to, work.rank_bytes[p] / item_bytes, type, reduce,
                                          static_cast<int>(p), comm, stream));
  }
  return Status::Ok();
}

}  // namespace farandole
