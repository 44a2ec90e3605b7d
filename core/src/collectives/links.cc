#include "collectives/links.h"

#include <string>

namespace farandole {
bool LinkOperation::ScalesFirst() const { return ScalesBeforeCrossing(*task_) && !task_->scale.IsIdentity(); }

void LinkOperation::ScaleInto(std::byte* place, size_t size_bytes, const std::byte** source, Scale* scale) const {
  const void* const input = *source;
  Fold(task_->dtype, task_->reduce, &input, 1, size_bytes / SizeOf(task_->dtype), *scale, place);
  *source = place;
  *scale = Scale();
}

Status VectorOnLinks::FindPlace() {
  const bool one_piece = task_->buffers.size() == 1 && task_->buffers[0].output != nullptr;
  const size_t size_bytes = vector_.size_bytes();
  place_ = one_piece ? static_cast<std::byte*>(task_->buffers[0].output) : scratch_->Get(size_bytes);
  if (place_ != nullptr) return Status::Ok();
  return Internal("no memory: " + std::to_string(size_bytes) + " bytes for tensors that are exchanged together");
}

void VectorOnLinks::Finish() {
  if (place_ != nullptr) vector_.WriteOutput(0, vector_.size_bytes(), place_);
}

std::unique_ptr<LinkOperation> MakeNothingOnLinks(const LinkStart&) { return nullptr; }

std::unique_ptr<LinkOperation> MakeOnLinks(const LinkStart& start) {
  switch (start.task->kind) {
#define FRD_OP_KIND(enumerator, number, name, traits, moved, ...) \
  case OpKind::enumerator:                                        \
    return Make##moved##OnLinks(start);
#include "common/types.def"
  }
  return nullptr;
}

}  // namespace farandole
