#include "operation/batch.h"

#include <algorithm>
#include <numeric>

#include "reduce/integer_average.h"

namespace farandole {

namespace {

// One tensor of one operation of the batch.
struct Piece {
  const ReadyOperation* ready;
  size_t index;
  Task task;  // with one buffer

  Operation* operation() const { return ready->operation.get(); }
  const Tensor& tensor() const { return ready->operation->request.tensors[index]; }
  const ProcessSet& set() const { return *ready->operation->admission.set; }
};

// A task takes pointers out of the operation, which stays alive beside it in its PlannedTask.
Task TaskOf(const Piece& piece) {
  const Request& request = piece.operation()->request;
  const Tensor& tensor = piece.tensor();
  Task task;
  task.set = &piece.set();
  task.kind = request.kind;
  task.backend = piece.operation()->backend;
  task.dtype = tensor.dtype;
  if (HasRoot(request.kind)) task.root = piece.set().PositionOf(request.root);
  if (Reduces(request.kind)) {
    const Reduction reduction = ReductionOf(request, piece.set().size());
    task.dtype = ReducedAs(tensor.dtype);
    task.reduce = reduction.reduce;
    task.scale = reduction.scale;
  }
  task.buffers = {{tensor.input, tensor.output, tensor.size_bytes()}};
  if (Device* const device = piece.operation()->device) {
    task.scale.multiplier *= request.prescale;  // see PrescaleInputs
    task.buffers[0].device = device;
    task.buffers[0].ready_event = tensor.ready_event;
  }
  return task;
}

size_t RowBytes(const Tensor& tensor) {
  size_t row_bytes = SizeOf(tensor.dtype);
  for (size_t d = 1; d < tensor.shape.size(); ++d) row_bytes *= static_cast<size_t>(tensor.shape[d]);
  return row_bytes;
}

// Allocates the result, if the core does. A rank that has joined needs none.
Status AllocateResult(Piece* piece) {
  const ReadyOperation& ready = *piece->ready;
  Operation* const operation = piece->operation();
  if (!AllocatesOutput(piece->task.kind)) return Status::Ok();
  const size_t tensors = operation->request.tensors.size();
  const std::vector<int64_t> received = FindRows(
      {ready.counts, tensors, piece->index, piece->tensor().shape[0], RowBytes(piece->tensor())}, &piece->task);
  if (operation->invited) return Status::Ok();
  const int64_t rows = std::accumulate(received.begin(), received.end(), int64_t{0});
  FRD_RETURN_IF_ERROR(AllocateOutput(operation, piece->index, rows));
  piece->task.buffers[0].output = operation->outputs[piece->index].memory.get();
  if (!TakesSplits(piece->task.kind)) return Status::Ok();
  operation->outputs.resize(std::max(operation->outputs.size(), 2 * tensors));
  operation->outputs[tensors + piece->index] = NumbersOutput(received, false);
  return Status::Ok();
}

// The first piece gives the task its kind, and a sum its type and scale: Fuse joins sums only where those are equal.
PlannedTask JoinPieces(const std::vector<size_t>& group, std::vector<Piece>* pieces) {
  PlannedTask planned;
  for (size_t i : group) {
    Piece& piece = (*pieces)[i];
    planned.operations.push_back(piece.ready->operation);
    planned.tensors.push_back(piece.index);
    ++piece.operation()->tasks_left;
    if (planned.operations.size() == 1) {
      planned.task = std::move(piece.task);
    } else {
      planned.task.buffers.push_back(piece.task.buffers[0]);
    }
  }
  return planned;
}

}  // namespace

// Allocates outputs here, on every rank at the same place of the log, and not when the operation was submitted: for
// allgather and alltoall their size is known only now.
Status PlanBatch(const std::vector<ReadyOperation>& batch, int64_t fusion_threshold_bytes,
                 std::vector<PlannedTask>* tasks) {
  std::vector<Piece> pieces;
  for (const ReadyOperation& ready : batch) {
    for (size_t i = 0; i < ready.operation->request.tensors.size(); ++i) {
      Piece piece{&ready, i, {}};
      piece.task = TaskOf(piece);
      FRD_RETURN_IF_ERROR(AllocateResult(&piece));
      pieces.push_back(std::move(piece));
    }
  }
  std::vector<const Task*> unfused;
  for (const Piece& piece : pieces) unfused.push_back(&piece.task);
  for (const auto& group : Fuse(unfused, fusion_threshold_bytes)) tasks->push_back(JoinPieces(group, &pieces));
  return Status::Ok();
}

namespace {

bool CanShare(const Task& a, const Task& b) {
  if (a.kind != b.kind || a.set != b.set || a.backend != b.backend) return false;
  if (!Fuses(a.kind) || a.root != b.root) return false;
  if (!Reduces(a.kind)) return true;
  return !NeedsWholeTensors(a.reduce) && a.dtype == b.dtype && a.reduce == b.reduce &&
         a.scale.multiplier == b.scale.multiplier && a.scale.divisor == b.scale.divisor;
}

}  // namespace

std::vector<std::vector<size_t>> Fuse(const std::vector<const Task*>& tasks, int64_t threshold_bytes) {
  std::vector<std::vector<size_t>> groups;
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto size_bytes = static_cast<int64_t>(tasks[i]->TotalBytes());
    // Only the latest group of a kind is open: looking further back would let a small tensor overtake many large ones.
    size_t group = groups.size();
    for (size_t g = groups.size(); g-- > 0 && group == groups.size();) {
      if (!CanShare(*tasks[groups[g][0]], *tasks[i])) continue;
      if (bytes[g] + size_bytes > threshold_bytes) break;
      group = g;
    }
    if (group == groups.size()) {
      groups.emplace_back();
      bytes.push_back(0);
    }
    groups[group].push_back(i);
    bytes[group] += size_bytes;
  }
  return groups;
}

// ---- averages of integers

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
