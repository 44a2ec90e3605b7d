#include "collectives/adasum.h"

#include <algorithm>
#include <string>

#include "reduce/adasum.h"

namespace farandole {
namespace {

// Up to this many positions every rank gathers all products and adds them in the order of positions, so that the bits
// do not depend on the nodes. The number of products grows with the third power of the positions.
constexpr size_t kMaxGathered = 64;

// About a millisecond of work before Advance returns.
constexpr size_t kProductsAtOnce = 1 << 20;

std::vector<size_t> Slices(const Task& task, size_t n) {
  const size_t width = SizeOf(task.dtype);
  std::vector<size_t> bytes;
  for (size_t p = 0; p < n; ++p) {
    const auto element_count = static_cast<int64_t>(task.buffers[0].size_bytes / width);
    const Range slice = BlockRange(element_count, width, static_cast<int>(p), static_cast<int>(n));
    bytes.push_back(static_cast<size_t>(slice.size()) * width);
  }
  return bytes;
}

}  // namespace

Adasum::Adasum(const Task* task)
    : task_(task),
      n_(static_cast<size_t>(task->set->size())),
      me_(static_cast<size_t>(task->set->position)),
      element_bytes_(SizeOf(task->dtype)),
      slice_bytes_(Slices(*task, n_)),
      gram_(GramSize(n_), 0.0) {
  moving_.set = task->set;
}

Status Adasum::Advance(const Task** step, bool* done) {
  switch (stage_) {
    case Stage::kExchange:
      FRD_RETURN_IF_ERROR(StartExchange());
      break;
    case Stage::kGather:
      StartGather();
      break;
    case Stage::kCollect:
      StartCollect();
      break;
    case Stage::kDone:
      *done = true;
      return Status::Ok();
    default:
      if (!Compute()) return Status::Ok();
  }
  const bool moves = stage_ != Stage::kMultiply && stage_ != Stage::kAdd;
  if (moves) *step = &moving_;
  stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
  return Status::Ok();
}

Status Adasum::StartExchange() {
  const size_t size_bytes = std::max(n_ * slice_bytes_[me_], size_t{1});
  slices_begin_ = slices_.Get(size_bytes);
  if (slices_begin_ == nullptr) return Internal("no memory: ", size_bytes, " bytes for adasum");
  moving_.kind = OpKind::kAlltoall;
  moving_.buffers = {{task_->buffers[0].input, slices_begin_, task_->buffers[0].size_bytes}};
  moving_.send_bytes = slice_bytes_;
  moving_.recv_bytes.assign(n_, slice_bytes_[me_]);
  return Status::Ok();
}

void Adasum::StartGather() {
  const size_t gram_bytes = gram_.size() * sizeof(double);
  if (n_ <= kMaxGathered) {
    grams_.resize(n_ * gram_.size());
    moving_.kind = OpKind::kAllgather;
    moving_.buffers = {{gram_.data(), grams_.data(), gram_bytes}};
    moving_.rank_bytes.assign(n_, gram_bytes);
  } else {
    moving_.kind = OpKind::kAllreduce;
    moving_.dtype = DType::kFloat64;
    moving_.buffers = {{gram_.data(), gram_.data(), gram_bytes}};
  }
}

void Adasum::StartCollect() {
  moving_.kind = OpKind::kAllgather;
  moving_.buffers = {{slices_begin_ + me_ * slice_bytes_[me_], task_->buffers[0].output, slice_bytes_[me_]}};
  moving_.rank_bytes = slice_bytes_;
}

// Multiplies or adds some elements of the slices. Returns whether they were the last.
bool Adasum::Compute() {
  const size_t element_count = slice_bytes_[me_] / element_bytes_;
  const size_t count = std::min(ElementsAtOnce(), element_count - at_);
  const std::vector<const void*> slices = SlicesFrom(at_);
  if (stage_ == Stage::kMultiply) {
    AddGram(task_->dtype, slices, count, &gram_);
  } else {
    if (at_ == 0) ReadGathered();
    AddWeighted(task_->dtype, slices, coefficients_, count, task_->scale, const_cast<void*>(slices[me_]));
  }
  at_ += count;
  if (at_ < element_count) return false;
  at_ = 0;
  return true;
}

void Adasum::ReadGathered() {
  if (n_ <= kMaxGathered) {
    std::fill(gram_.begin(), gram_.end(), 0.0);
    for (size_t i = 0; i < grams_.size(); ++i) gram_[i % gram_.size()] += grams_[i];
  }
  coefficients_ = AdasumCoefficients(n_, gram_);
}

std::vector<const void*> Adasum::SlicesFrom(size_t first) const {
  std::vector<const void*> slices;
  for (size_t p = 0; p < n_; ++p) slices.push_back(slices_begin_ + p * slice_bytes_[me_] + first * element_bytes_);
  return slices;
}

size_t Adasum::ElementsAtOnce() const {
  return std::max(kProductsAtOnce / gram_.size() / kGramStretch, size_t{1}) * kGramStretch;
}

}  // namespace farandole
