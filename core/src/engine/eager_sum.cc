#include "engine/eager_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/failpoint.h"
#include "reduce/reduce.h"

namespace farandole {
namespace {

// The least to fold at a time, while the rest is on its way.
constexpr size_t kFoldBytes = 64 << 10;

}  // namespace

EagerSum::EagerSum(OperationPtr operation)
    : operation_(std::move(operation)), reduction_(ReductionOf(operation_->request, set().size())) {
  tensors_.reserve(operation_->request.tensors.size());
  for (const Tensor& tensor : operation_->request.tensors) {
    const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
    tensors_.push_back({tensor.input, tensor.output, tensor.dtype, elements});
  }
  const int groups = set().layout.group_count();
  peers_.reserve(static_cast<size_t>(groups));
  for (int g = 0; g < groups; ++g) peers_.push_back({set().LeaderOf(g)});
  mine_ = set().ranks[static_cast<size_t>(set().position)];
}

// ---- inside the group

void EagerSum::PutInput() const {
  CellBuffer cells = *admission().group_cells;
  cells.Put(set().member(), tensors_.data(), tensors_.size(), admission().stamp());
}

void EagerSum::MakePartial() {
  FRD_FAILPOINT("eager.partial");
  const FloatingPointScope scope;
  has_partial_ = true;
  if (collects()) {
    FoldCellsOfGroup();
  } else if (std::any_of(tensors_.begin(), tensors_.end(), [this](const auto& tensor) { return NeedsOwn(tensor); })) {
    FoldInputs();
  }
}

bool EagerSum::ScalesFirst(const CellTensor& tensor) const {
  return ScalesBeforeCrossing(tensor.dtype, reduction_.reduce);
}

// True for data that are scaled before they are sent, that the fold overwrites, or that do not exist, since a rank that
// has joined sends zeros.
bool EagerSum::NeedsOwn(const CellTensor& tensor) const {
  const bool is_room = IsHalf(tensor.dtype) && peers_.size() > 2;
  return tensor.input == nullptr || is_room || (ScalesFirst(tensor) && !reduction_.scale.IsIdentity());
}

void EagerSum::FoldInputs() {
  own_.resize(payload_bytes());
  std::byte* to = own_.data();
  for (const CellTensor& tensor : tensors_) {
    const Scale scale = ScalesFirst(tensor) ? reduction_.scale : Scale();
    if (tensor.input != nullptr)
      Fold(tensor.dtype, reduction_.reduce, &tensor.input, 1, tensor.element_count, scale, to);
    to += tensor.size_bytes();
  }
}

void EagerSum::FoldCellsOfGroup() {
  const CellBuffer& cells = *admission().group_cells;
  own_.resize(payload_bytes());
  size_t offset = 0;
  for (const CellTensor& tensor : tensors_) {
    inputs_.clear();
    for (int m = 0; m < cells.member_count(); ++m) inputs_.push_back(cells.payload(m) + offset);
    const Scale scale = ScalesFirst(tensor) ? reduction_.scale : Scale();
    Fold(tensor.dtype, reduction_.reduce, inputs_.data(), inputs_.size(), tensor.element_count, scale,
         own_.data() + offset);
    offset += tensor.size_bytes();
  }
}

bool EagerSum::TakeResult() {
  if (!HasResult()) return false;
  CopyResult();
  return true;
}

void EagerSum::CopyResult() {
  const std::byte* from = admission().group_cells->result();
  for (const CellTensor& tensor : tensors_) {
    if (tensor.output != nullptr) std::memcpy(tensor.output, from, tensor.size_bytes());
    from += tensor.size_bytes();
  }
}

// ---- between groups

// Folds in pieces of at least kFoldBytes, while the rest is under way, and the end of a tensor however short it is.
bool EagerSum::FoldUpTo(size_t available_bytes) {
  if (folded()) return false;
  while (!folded()) {
    const CellTensor& folding = tensors_[folded_tensors_];
    const size_t width = SizeOf(folding.dtype);
    const size_t here = available_bytes > offset_bytes_ ? available_bytes - offset_bytes_ : 0;
    const size_t count = std::min(here / width, folding.element_count) - element_;
    const bool last = element_ + count == folding.element_count;
    if (!last && count * width < kFoldBytes) return false;
    if (count > 0) FoldElements(count);
    element_ += count;
    if (!last) return false;
    offset_bytes_ += folding.size_bytes();
    element_ = 0;
    ++folded_tensors_;
  }
  if (collects()) {
    FRD_FAILPOINT("eager.result");
    admission().group_cells->AnnounceResult(admission().stamp());
    CopyResult();
  }
  return true;
}

// Gives the same bits as an exchange by schedule, see AllreduceOnLinks and Runner::Fold.
void EagerSum::FoldElements(size_t count) {
  const CellTensor& folding = tensors_[folded_tensors_];
  const size_t done_bytes = element_ * SizeOf(folding.dtype), at = offset_bytes_ + done_bytes;
  std::byte* const output = ResultOf(folding, done_bytes);
  if (output == nullptr) return;
  const FloatingPointScope scope;
  inputs_.clear();
  for (const Peer& peer : peers_) {
    const std::byte* input = admission().inbox->at(use(), peer.rank).data.get() + at;
    if (IsMine(peer)) input = own_.empty() ? static_cast<const std::byte*>(folding.input) + done_bytes : &own_[at];
    inputs_.push_back(input);
  }
  const Scale scale = ScalesFirst(folding) ? Scale() : reduction_.scale;
  const bool rounded = IsHalf(folding.dtype) && inputs_.size() > 2;
  (rounded ? FoldRounded : Fold)(folding.dtype, reduction_.reduce, inputs_.data(), inputs_.size(), count, scale,
                                 output);
}

// Returns where the result of the tensor that is being folded goes, from byte `at` on; null: it is dropped.
std::byte* EagerSum::ResultOf(const CellTensor& tensor, size_t at) const {
  if (collects()) return admission().group_cells->result() + offset_bytes_ + at;
  return tensor.output == nullptr ? nullptr : static_cast<std::byte*>(tensor.output) + at;
}

}  // namespace farandole
