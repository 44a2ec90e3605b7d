#include "collectives/collectives.h"

#include <algorithm>
#include <new>
#include <string>

#include "algorithms/partition.h"
#include "collectives/task.h"

namespace farandole {
namespace {

constexpr size_t kKeptBytes = 16 << 20;

}  // namespace

std::byte* Scratch::Get(size_t size_bytes) {
  if (size_bytes <= size_bytes_) return memory_.get();
  memory_.reset();
  memory_.reset(new (std::nothrow) std::byte[size_bytes]);
  size_bytes_ = memory_ ? size_bytes : 0;
  return memory_.get();
}

void Scratch::Release() {
  if (size_bytes_ <= kKeptBytes) return;
  memory_.reset();
  size_bytes_ = 0;
}

Status LinkOperation::Start() {
  switch (task_->kind) {
    case OpKind::kAllreduce:
      return StartAllreduce();
    case OpKind::kBroadcast:
      return StartBroadcast();
    case OpKind::kAllgather:
      return StartAllgather();
    case OpKind::kReducescatter:
      return StartReducescatter();
    default:  // nothing to move
      return Status::Ok();
  }
}

void LinkOperation::Finish() {
  const Segment* const segments = task_->segments.data();
  if (place_ != nullptr) {
    const IoVector vector(&task_->segments);
    vector.WriteOutput(0, vector.size_bytes(), place_);
  } else if (task_->kind == OpKind::kAllgather && segments[0].output != nullptr) {
    auto* const mine = static_cast<std::byte*>(segments[0].output) + PartOffsets(task_->rank_bytes)[me_];
    if (mine != segments[0].input) ReadInput(segments[0], 0, task_->rank_bytes[me_], mine);
  }
  scratch_->Release();
}

Status LinkOperation::FindPlace(size_t size_bytes) {
  const bool one_piece = task_->segments.size() == 1 && task_->segments[0].output != nullptr;
  place_ = one_piece ? static_cast<std::byte*>(task_->segments[0].output) : scratch_->Get(size_bytes);
  if (place_ != nullptr) return Status::Ok();
  return Internal("no memory: " + std::to_string(size_bytes) + " bytes for tensors that are exchanged together");
}

bool LinkOperation::ScalesFirst() const { return ScalesBeforeCrossing(*task_) && !task_->scale.IsIdentity(); }

void LinkOperation::ScaleInto(std::byte* place, size_t size_bytes, const std::byte** source, Scale* scale) const {
  const void* const input = *source;
  Fold(task_->dtype, task_->reduce, &input, 1, size_bytes / SizeOf(task_->dtype), *scale, place);
  *source = place;
  *scale = Scale();
}

Status LinkOperation::StartAllreduce() {
  const IoVector vector(&task_->segments);
  const size_t size_bytes = vector.size_bytes();
  if (size_bytes == 0) return Status::Ok();
  FRD_RETURN_IF_ERROR(FindPlace(size_bytes));
  const auto* source = static_cast<const std::byte*>(vector.Input(0, size_bytes));
  if (source == nullptr) {
    vector.ReadInput(0, size_bytes, place_);
    source = place_;
  }
  const size_t element_count = size_bytes / SizeOf(task_->dtype);
  Scale scale = task_->scale;
  if (ScalesFirst()) ScaleInto(place_, size_bytes, &source, &scale);
  exchange_->Allreduce(*task_, scale, place_, static_cast<int64_t>(element_count), 1, source);
  return Status::Ok();
}

Status LinkOperation::StartBroadcast() {
  const IoVector vector(&task_->segments);
  const size_t size_bytes = vector.size_bytes();
  if (size_bytes == 0) return Status::Ok();
  const bool is_root = static_cast<int>(me_) == task_->root;
  // The root's memory is only read.
  if (is_root) place_ = static_cast<std::byte*>(const_cast<void*>(vector.Input(0, size_bytes)));
  if (place_ == nullptr) {
    FRD_RETURN_IF_ERROR(FindPlace(size_bytes));
    if (is_root) vector.ReadInput(0, size_bytes, place_);
  }
  exchange_->Broadcast(place_, static_cast<int64_t>(size_bytes), 1, task_->root);
  return Status::Ok();
}

Status LinkOperation::StartAllgather() {
  const Segment& segment = task_->segments[0];
  const std::vector<size_t>& sizes = task_->rank_bytes;
  const std::vector<size_t> offsets = PartOffsets(sizes);
  auto* output = static_cast<std::byte*>(segment.output);
  if (output == nullptr &&
      exchange_->AllgatherOf(*std::max_element(sizes.begin(), sizes.end())) != Algorithm::kDirect) {
    output = scratch_->Get(offsets.back() + sizes.back() + 1);
    if (output == nullptr) return Internal("no memory for what is passed on");
  }
  std::vector<BlockMemory> blocks;
  for (size_t p = 0; p < offsets.size(); ++p) {
    blocks.push_back({p == me_ ? segment.input : nullptr, output ? output + offsets[p] : nullptr, sizes[p]});
  }
  exchange_->Allgather(0, 1, std::move(blocks));
  return Status::Ok();
}

Status LinkOperation::StartReducescatter() {
  const Segment& segment = task_->segments[0];
  const std::vector<size_t> offsets = PartOffsets(task_->rank_bytes);
  const size_t size_bytes = offsets.back() + task_->rank_bytes.back();
  const auto* source = static_cast<const std::byte*>(segment.input);
  Scale scale = task_->scale;
  if (ScalesFirst() && size_bytes > 0 && source != nullptr) {
    std::byte* const scaled = scratch_->Get(size_bytes);
    if (scaled == nullptr)
      return Internal("no memory: " + std::to_string(size_bytes) + " bytes for a tensor that is scaled");
    ScaleInto(scaled, size_bytes, &source, &scale);
  } else if (ScalesFirst()) {
    scale = Scale();  // zeros
  }
  std::vector<BlockMemory> blocks;
  for (size_t p = 0; p < offsets.size(); ++p) {
    blocks.push_back(
        {source ? source + offsets[p] : nullptr, p == me_ ? segment.output : nullptr, task_->rank_bytes[p]});
  }
  exchange_->ReduceScatter(*task_, scale, 0, 1, std::move(blocks));
  return Status::Ok();
}

}  // namespace farandole
