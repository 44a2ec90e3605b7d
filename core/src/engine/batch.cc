#include "engine/batch.h"

#include "controller/fuse.h"
#include "engine/small.h"

namespace farandole {
namespace {

// One tensor of one operation of the batch.
struct Piece {
  const ReadyOperation* ready;
  size_t index;
  Work work;  // with one segment
};

Work WorkOf(const ReadyOperation& ready, size_t index, const ProcessSet& set) {
  const Request& request = ready.operation->request;
  const Tensor& tensor = request.tensors[index];
  const Reduction reduction = ReductionOf(request, set.size());
  Work work;
  work.set = &set;
  work.kind = request.kind;
  work.dtype = tensor.dtype;
  work.root = request.root;
  if (request.kind == OpKind::kAllreduce) {
    work.reduce = reduction.reduce;
    work.scale = reduction.scale;
  }
  work.segments = {{tensor.input, tensor.output, tensor.size_bytes()}};
  return work;
}

// The rows of all ranks, whose sum is the first dimension of the result.
Status CompleteAllgather(const ReadyOperation& ready, size_t index, const ProcessSet& set, Work* work) {
  Operation* const operation = ready.operation.get();
  const Tensor& tensor = operation->request.tensors[index];
  const size_t tensors = operation->request.tensors.size();
  size_t row_bytes = SizeOf(tensor.dtype);
  for (size_t d = 1; d < tensor.shape.size(); ++d) row_bytes *= static_cast<size_t>(tensor.shape[d]);
  int64_t rows = 0;
  for (size_t r = 0; r < static_cast<size_t>(set.size()); ++r) {
    const int64_t of_rank = ready.extents[r * tensors + index];
    rows += of_rank;
    work->rank_bytes.push_back(static_cast<size_t>(of_rank) * row_bytes);
  }
  FRD_RETURN_IF_ERROR(AllocateOutput(operation, index, rows));
  work->segments[0].output = operation->outputs[index].memory.get();
  return Status::Ok();
}

FuseItem ItemOf(const Work& work) {
  return {work.kind,
          work.dtype,
          work.reduce,
          work.root,
          work.scale.multiplier / work.scale.divisor,
          static_cast<int64_t>(work.TotalBytes())};
}

PlannedWork Join(const std::vector<size_t>& group, std::vector<Piece>* pieces) {
  PlannedWork planned;
  for (size_t i : group) {
    Piece& piece = (*pieces)[i];
    planned.operations.push_back(piece.ready->operation);
    planned.tensors.push_back(piece.index);
    ++piece.ready->operation->works_left;
    if (planned.operations.size() == 1) {
      planned.work = std::move(piece.work);
    } else {
      planned.work.segments.push_back(piece.work.segments[0]);
    }
  }
  return planned;
}

}  // namespace

Status PlanBatch(const std::vector<ReadyOperation>& batch, const ProcessSet& set, int64_t fusion_threshold_bytes,
                 std::vector<PlannedWork>* works) {
  std::vector<Piece> pieces;
  for (const ReadyOperation& ready : batch) {
    for (size_t i = 0; i < ready.operation->request.tensors.size(); ++i) {
      Piece piece{&ready, i, WorkOf(ready, i, set)};
      if (piece.work.kind == OpKind::kAllgather) FRD_RETURN_IF_ERROR(CompleteAllgather(ready, i, set, &piece.work));
      pieces.push_back(std::move(piece));
    }
  }
  std::vector<FuseItem> items;
  for (const Piece& piece : pieces) items.push_back(ItemOf(piece.work));
  for (const auto& group : Fuse(items, fusion_threshold_bytes)) works->push_back(Join(group, &pieces));
  return Status::Ok();
}

}  // namespace farandole
