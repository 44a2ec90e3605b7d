#include "backends/nccl/tensors.h"

namespace farandole {

Status AwaitInputs(const Work& work, Lane* lane) {
  for (const Segment& segment : work.segments) {
    if (segment.ready_event == nullptr) continue;
    FRD_RETURN_IF_ERROR(lane->device()->WaitInStream(lane->stream(), segment.ready_event));
  }
  return Status::Ok();
}

// A rank has joined when it has joined for all segments.
Status TakeMemoryOfNobody(const Work& work, size_t size_bytes, Lane* lane) {
  const auto lacks_memory = [](const Segment& segment) { return segment.output == nullptr; };
  const bool lacks = std::any_of(work.segments.begin(), work.segments.end(), lacks_memory);
  return lacks && size_bytes > 0 ? lane->TakeZeros(size_bytes) : Status::Ok();
}

Status FindTensors(const Work& work, Lane* lane, std::vector<Segment>* tensors) {
  FRD_RETURN_IF_ERROR(TakeMemoryOfNobody(work, work.TotalBytes(), lane));
  tensors->clear();
  std::byte* nobodys = lane->zeros();
  for (Segment segment : work.segments) {
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
