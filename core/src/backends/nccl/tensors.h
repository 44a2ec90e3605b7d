// The tensors of a work, as NCCL's calls take them. The driver alone calls.
#pragma once

#include <algorithm>
#include <vector>

#include "algorithms/schedule.h"
#include "backends/backend.h"
#include "backends/nccl/lane.h"

namespace farandole {

// The lane's stream goes on once every tensor's ready event has happened.
Status AwaitInputs(const Task& task, Lane* lane);

// What stands in for the memory of a rank that has joined: size_bytes of the lane's zeros. Nothing for other ranks.
Status TakeMemoryOfNobody(const Task& task, size_t size_bytes, Lane* lane);

// Of an allreduce or a broadcast: every tensor that has elements, with memory for input and output.
Status FindTensors(const Task& task, Lane* lane, std::vector<Segment>* tensors);

// visit(tensor, where in it, where in the range, size) for the parts of a range of their vector, all in bytes, as long
// as it is Ok.
template <typename Visit>
Status ForEachPart(const std::vector<Segment>& tensors, Range range, Visit visit) {
  const auto range_begin = static_cast<size_t>(range.begin), range_end = static_cast<size_t>(range.end);
  size_t tensor_begin = 0;
  for (const Segment& tensor : tensors) {
    const size_t begin = std::max(tensor_begin, range_begin);
    const size_t end = std::min(tensor_begin + tensor.size_bytes, range_end);
    if (begin < end) FRD_RETURN_IF_ERROR(visit(tensor, begin - tensor_begin, begin - range_begin, end - begin));
    tensor_begin += tensor.size_bytes;
  }
  return Status::Ok();
}

}  // namespace farandole
