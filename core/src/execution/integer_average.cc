#include "execution/integer_average.h"

#include "reduce/integer_average.h"

namespace farandole {
namespace {

size_t CountOf(const Task& task, size_t size_bytes) { return size_bytes / SizeOf(task.dtype); }
size_t WideBytesOf(const Task& task, size_t size_bytes) { return WideBytes(task.dtype, CountOf(task, size_bytes)); }

// A reducescatter's result is one part of the vector; an allreduce's is the vector.
size_t OutputBytes(const Task& task, const IoBuffer& buffer) {
  return AllocatesOutput(task.kind) ? task.ResultBytes() : buffer.size_bytes;
}

// A rank that has joined has no memory, which means the same for the wide buffer.
Status WidenBuffer(const Task& task, Operation* operation, IoBuffer* buffer) {
  const size_t count = CountOf(task, buffer->size_bytes);
  const size_t input_bytes = WideBytesOf(task, buffer->size_bytes);
  const bool in_place = !AllocatesOutput(task.kind);
  const size_t output_bytes = in_place ? 0 : WideBytesOf(task, OutputBytes(task, *buffer));
  buffer->size_bytes = input_bytes;
  if (buffer->input == nullptr) return Status::Ok();
  std::byte* wide = nullptr;
  FRD_RETURN_IF_ERROR(AllocateScratch(operation, input_bytes + output_bytes, &wide));
  Widen(task.dtype, buffer->input, count, wide);
  buffer->input = wide;
  if (buffer->output != nullptr) buffer->output = in_place ? wide : wide + input_bytes;
  return Status::Ok();
}

}  // namespace

Status WidenIntegerAverage(PlannedTask* planned) {
  const Task& task = planned->task;
  if (!Reduces(task.kind) || !AveragesIntegers(task.dtype, planned->operations[0]->request.reduce)) return Status::Ok();
  Task wide = task;
  for (size_t i = 0; i < wide.buffers.size(); ++i)
    FRD_RETURN_IF_ERROR(WidenBuffer(task, planned->operations[i].get(), &wide.buffers[i]));
  for (size_t& part_bytes : wide.rank_bytes) part_bytes = WideBytesOf(task, part_bytes);
  wide.dtype = kWideType;
  wide.scale = Scale();
  planned->wide = std::move(wide);
  return Status::Ok();
}

void NarrowIntegerAverage(PlannedTask* planned) {
  if (!planned->wide) return;
  const Task& task = planned->task;
  for (size_t i = 0; i < task.buffers.size(); ++i) {
    const IoBuffer& buffer = task.buffers[i];
    if (buffer.output == nullptr) continue;
    const size_t count = CountOf(task, OutputBytes(task, buffer));
    AverageOfWide(task.dtype, planned->wide->buffers[i].output, count, task.scale, buffer.output);
  }
  for (const OperationPtr& operation : planned->operations) operation->scratch.clear();
}

}  // namespace farandole
