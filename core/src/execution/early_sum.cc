#include "execution/early_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "algorithms/plan.h"
#include "collectives/shard_exchange.h"
#include "common/failpoint.h"
#include "reduce/reduce.h"

namespace farandole {
namespace {

constexpr Plan kPlan{0, PathKind::kEarly, Algorithm::kExchange};

}  // namespace

EarlySum::EarlySum(ProcessSetPtr set, Transport* transport)
    : set_(std::move(set)), schedule_(ExchangeAll(set_->layout.node_count(), set_->node())) {
  if (!leads()) return;
  std::vector<int> leaders;
  for (int node = 0; node < set_->layout.node_count(); ++node) leaders.push_back(set_->LeaderOf(node));
  runner_.emplace(&schedule_, transport, std::move(leaders));
}

void EarlySum::Begin(OperationPtr operation) {
  operation_ = std::move(operation);
  reduction_ = ReductionOf(operation_->request, set().size());
  has_started_ = false;
  tensors_.clear();
  payload_bytes_ = 0;
  for (const Tensor& tensor : operation_->request.tensors) {
    const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
    tensors_.push_back({tensor.input, tensor.output, tensor.dtype, elements});
    payload_bytes_ += tensor.size_bytes();
  }
}

MessageTag EarlySum::Tag() const {
  const Admission& mine = admission();
  return {mine.id, mine.serial, mine.generation(), 0, kPlan.code(), Lane::kEarly};
}

// ---- inside the node

void EarlySum::WriteInput() const {
  SlotBuffer slots = this->slots();
  slots.Write(tensors_.data(), tensors_.size(), admission().generation());
}

// A rank that has joined sends zeros.
void EarlySum::ReduceInputs() {
  const Scale scale = ScalesFirst() ? reduction_.scale : Scale();
  size_t offset = 0;
  for (const SlotTensor& tensor : tensors_) {
    operands_.clear();
    if (!collects()) operands_.push_back(tensor.input);
    for (int m = 0; collects() && m < slots().member_count(); ++m) operands_.push_back(slots().payload(m) + offset);
    std::byte* const to = own_.data() + offset;
    if (operands_.front() != nullptr) {
      Reduce(tensor.dtype, reduction_.reduce, operands_.data(), operands_.size(), tensor.element_count, scale, to);
    } else {
      std::memset(to, 0, tensor.size_bytes());
    }
    offset += tensor.size_bytes();
  }
}

void EarlySum::CopyOut(const std::byte* from) const {
  for (const SlotTensor& tensor : tensors_) {
    if (tensor.output != nullptr && tensor.output != from) std::memcpy(tensor.output, from, tensor.size_bytes());
    from += tensor.size_bytes();
  }
}

bool EarlySum::ScalesFirst() const { return ScalesBeforeExchange(tensors_.front().dtype, reduction_.reduce); }

// ---- between nodes

// All tensors have one element type (plan.h).
Status EarlySum::StartExchange() {
  FRD_FAILPOINT("early.partial");
  const FloatingPointScope scope;
  const SlotTensor& first = tensors_.front();
  const bool is_scaled = ScalesFirst() && !reduction_.scale.IsIdentity();
  const bool is_in_place = !collects() && tensors_.size() == 1 && first.input != nullptr && !is_scaled;
  if (!is_in_place) {
    own_.resize(payload_bytes_);
    ReduceInputs();
  }
  auto* const output = tensors_.size() == 1 ? static_cast<std::byte*>(first.output) : own_.data();
  result_ = collects() ? slots().result() : output;
  RunPlan plan;
  plan.dtype = first.dtype;
  plan.reduce = reduction_.reduce;
  if (!ScalesFirst()) plan.scale = reduction_.scale;
  plan.blocks = {{is_in_place ? first.input : own_.data(), result_, payload_bytes_}};
  // One message to each leader: the runner relies on the order of completions, which the early lane does not keep.
  // Parts are also slower (docs/benchmarks/tcp.md#parts).
  plan.window_bytes = payload_bytes_;
  has_started_ = true;
  runner_->Start(std::move(plan), Tag());
  bool moved = false;
  return runner_->Post(&moved);
}

Status EarlySum::Advance(bool* done) {
  if (!leads()) {
    *done = HasResult();
    if (*done) CopyOut(slots().result());
    return Status::Ok();
  }
  if (!has_started_) return Status::Ok();
  const FloatingPointScope scope;
  bool moved = false;
  runner_->ReduceReady(&moved);
  FRD_RETURN_IF_ERROR(runner_->Post(&moved));
  if (!runner_->done()) return Status::Ok();
  if (collects()) {
    FRD_FAILPOINT("early.result");
    slots().AnnounceResult(admission().generation());
  }
  if (result_ != nullptr) CopyOut(result_);
  *done = true;
  return Status::Ok();
}

}  // namespace farandole
