#include "backends/packing.h"

#include <algorithm>
#include <cstring>

namespace farandole {

Status Packing::Pack(const Task& task) {
  task_ = &task;
  input_bytes_ = task.TotalBytes();
  output_bytes_ = task.ResultBytes();
  const IoBuffer& first = task.buffers[0];
  input_ = first.input;
  output_ = first.output;
  const bool lacks_input = first.input == nullptr && input_bytes_ > 0;
  if (task.buffers.size() > 1 || lacks_input || ScalesBefore()) {
    std::byte* const packed = inputs_.Get(std::max<size_t>(input_bytes_, 1));
    if (packed == nullptr) return Short(input_bytes_);
    Gather(packed);
    input_ = packed;
    if (Fuses(task.kind)) output_ = packed;
  }
  if (output_ == nullptr) {
    output_ = outputs_.Get(std::max<size_t>(output_bytes_, 1));
    if (output_ == nullptr) return Short(output_bytes_);
  }
  // A library broadcasts in one buffer: the input on the root, which has the data, and the output elsewhere.
  if (!OnlyRootSends(task.kind)) return Status::Ok();
  if (IsRoot()) {
    output_ = const_cast<void*>(input_);
  } else {
    input_ = output_;
  }
  return Status::Ok();
}

// Sums of 16-bit floats are scaled before they are sent, so that an average of large values does not overflow on its
// way.
bool Packing::ScalesBefore() const {
  return Reduces(task_->kind) && !task_->scale.IsIdentity() && ScalesBeforeCrossing(task_->dtype, task_->reduce);
}

void Packing::Gather(std::byte* to) const {
  const bool receives = OnlyRootSends(task_->kind) && !IsRoot();
  if (receives) return;
  const FloatingPointScope scope;
  for (const IoBuffer& buffer : task_->buffers) {
    if (buffer.input == nullptr) {
      std::memset(to, 0, buffer.size_bytes);
    } else if (ScalesBefore()) {
      Fold(task_->dtype, task_->reduce, &buffer.input, 1, buffer.size_bytes / SizeOf(task_->dtype), task_->scale, to);
    } else if (buffer.size_bytes > 0) {
      std::memcpy(to, buffer.input, buffer.size_bytes);
    }
    to += buffer.size_bytes;
  }
}

void Packing::Unpack() {
  const FloatingPointScope scope;
  if (Reduces(task_->kind) && !task_->scale.IsIdentity() && !ScalesBefore()) {
    const void* const reduced = output_;
    Fold(task_->dtype, task_->reduce, &reduced, 1, output_bytes_ / SizeOf(task_->dtype), task_->scale, output_);
  }
  Scatter();
}

// Copies results to buffers that are not where the library wrote. A joined rank's buffers have no memory, so its
// results stay in the scratch memory.
void Packing::Scatter() const {
  if (!Fuses(task_->kind)) return;
  const auto* from = static_cast<const std::byte*>(output_);
  for (const IoBuffer& buffer : task_->buffers) {
    const bool elsewhere = buffer.output != nullptr && buffer.output != from && buffer.size_bytes > 0;
    if (elsewhere) std::memcpy(buffer.output, from, buffer.size_bytes);
    from += buffer.size_bytes;
  }
}

Status Packing::Short(size_t size_bytes) const {
  return Internal("there is no memory for ", size_bytes, " bytes to pack the tensors of one ", NameOf(task_->kind),
                  "; lower FARANDOLE_FUSION_THRESHOLD or the batch size");
}

}  // namespace farandole
