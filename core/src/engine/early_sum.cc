#include "engine/early_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "algorithms/plan.h"
#include "collectives/shard_exchange.h"
#include "common/failpoint.h"
#include "reduce/reduce.h"

namespace farandole {
namespace {

std::vector<int> LeadersOf(const ProcessSet& set) {
  std::vector<int> leaders;
  for (int group = 0; group < set.layout.group_count(); ++group) leaders.push_back(set.LeaderOf(group));
  return leaders;
}

Algorithm AlgorithmHere(const ProcessSet& set) {
  const int rank = set.ranks[static_cast<size_t>(set.position)];
  return HasOtherPlan("early-tree", rank) ? Algorithm::kTree : Algorithm::kExchange;
}

Schedule MakeSchedule(const ProcessSet& set) {
  const int groups = set.layout.group_count(), me = set.group();
  return AlgorithmHere(set) == Algorithm::kTree ? TreeAllreduce(groups, me) : ExchangeAll(groups, me);
}

}  // namespace

EarlySum::EarlySum(ProcessSetPtr set, Transport* transport) : set_(std::move(set)), schedule_(MakeSchedule(*set_)) {
  if (leads()) runner_.emplace(&schedule_, transport, LeadersOf(*set_));
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
  return {mine.id,     mine.serial, mine.stamp(), mine.round, 0, Plan{0, PathKind::kEarly, AlgorithmHere(set())}.code(),
          Lane::kEarly};
}

// ---- inside the node

void EarlySum::PutInput() const {
  CellBuffer cells = *admission().group_cells;
  cells.Put(set().member(), tensors_.data(), tensors_.size(), admission().stamp());
}

void EarlySum::FoldCells() {
  const CellBuffer& cells = *admission().group_cells;
  std::vector<const void*> inputs(static_cast<size_t>(cells.member_count()));
  size_t offset = 0;
  for (const CellTensor& tensor : tensors_) {
    for (size_t m = 0; m < inputs.size(); ++m) inputs[m] = cells.payload(static_cast<int>(m)) + offset;
    Fold(tensor.dtype, reduction_.reduce, inputs.data(), inputs.size(), tensor.element_count,
         ScalesFirst() ? reduction_.scale : Scale(), own_.data() + offset);
    offset += tensor.size_bytes();
  }
}

// A rank that has joined sends zeros.
void EarlySum::FoldInputs() {
  std::byte* to = own_.data();
  for (const CellTensor& tensor : tensors_) {
    const Scale scale = ScalesFirst() ? reduction_.scale : Scale();
    if (tensor.input != nullptr) {
      Fold(tensor.dtype, reduction_.reduce, &tensor.input, 1, tensor.element_count, scale, to);
    } else {
      std::memset(to, 0, tensor.size_bytes());
    }
    to += tensor.size_bytes();
  }
}

void EarlySum::CopyOut(const std::byte* from) const {
  for (const CellTensor& tensor : tensors_) {
    if (tensor.output != nullptr && tensor.output != from) std::memcpy(tensor.output, from, tensor.size_bytes());
    from += tensor.size_bytes();
  }
}

bool EarlySum::ScalesFirst() const { return ScalesBeforeCrossing(tensors_.front().dtype, reduction_.reduce); }

// ---- between nodes

// All tensors have one element type (plan.h).
Status EarlySum::StartExchange() {
  FRD_FAILPOINT("early.partial");
  const FloatingPointScope scope;
  const CellTensor& first = tensors_.front();
  const bool is_scaled = ScalesFirst() && !reduction_.scale.IsIdentity();
  const bool is_in_place = !collects() && tensors_.size() == 1 && first.input != nullptr && !is_scaled;
  if (!is_in_place) own_.resize(payload_bytes_);
  if (collects()) {
    FoldCells();
  } else if (!is_in_place) {
    FoldInputs();
  }
  auto* const output = tensors_.size() == 1 ? static_cast<std::byte*>(first.output) : own_.data();
  result_ = collects() ? admission().group_cells->result() : output;
  RunPlan plan;
  plan.dtype = first.dtype;
  plan.reduce = reduction_.reduce;
  if (!ScalesFirst()) plan.scale = reduction_.scale;
  plan.blocks = {{is_in_place ? first.input : own_.data(), result_, payload_bytes_}};
  // One message to each leader: the runner relies on the order of completions, which the early lane does not keep.
  // Parts are also slower (docs/benchmarks/tcp.md#parts).
  plan.chunk_bytes = payload_bytes_ + kBorderBytes;  // a chunk is a multiple of that
  has_started_ = true;
  runner_->Start(plan, Tag());
  bool moved = false;
  return runner_->Post(&moved);
}

Status EarlySum::Advance(bool* done) {
  if (!leads()) {
    *done = HasResult();
    if (*done) CopyOut(admission().group_cells->result());
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
    admission().group_cells->AnnounceResult(admission().stamp());
  }
  if (result_ != nullptr) CopyOut(result_);
  *done = true;
  return Status::Ok();
}

void EarlySum::Drop() {
  if (runner_) runner_->Drop();
}

}  // namespace farandole
