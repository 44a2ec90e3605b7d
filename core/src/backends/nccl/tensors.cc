#include "backends/nccl/tensors.h"

namespace farandole {

Status AwaitInputs(const Task& task, Lane* lane) {
  for (const Segment& segment : task.segments) {
    if (segment.ready_event == nullptr) continue;
    FRD_RETURN_IF_ERROR(lane->device()->WaitInStream(lane->stream(), segment.ready_event));
  }
  return Status::Ok();
}

// A rank has joined when it has joined for all segments.
Status TakeMemoryOfNobody(const Task& task, size_t size_bytes, Lane* lane) {
  const auto lacks_memory = [](const Segment& segment) { return segment.output == nullptr; };
  const bool lacks = std::any_of(task.segments.begin(), task.segments.end(), lacks_memory);
  return lacks && size_bytes > 0 ? lane->TakeZeros(size_bytes) : Status::Ok();
}

Status FindTensors(const Task& task, Lane* lane, std::vector<Segment>* tensors) {
  FRD_RETURN_IF_ERROR(TakeMemoryOfNobody(task, task.TotalBytes(), lane));
  tensors->clear();
  std::byte* nobodys = lane->zeros();
  for (Segment segment : task.segments) {
    if (segment.size_bytes == 0) continue;
    if (segment.input == nullptr) segment.input = segment.output != nullptr ? segment.output : nobodys;
    if (segment.output == nullptr) {
      segment.output = nobodys;
      nobodys += segment.size_bytes;
    }
    tensors->push_back(segment);
  }
  return Status::Ok();
}

}  // namespace farandole
