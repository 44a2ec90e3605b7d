#include "execution/single_rank.h"

#include <cstring>

namespace farandole {
namespace {

// Works on the host copy of tensors on a device. A sum over one rank is its input, scaled; and an operation with splits
// sends all rows to itself. kInternal when memory is short.
Status PerformOnHost(Operation* operation) {
  const Request& request = operation->request;
  const HostCopy* const copy = operation->host_copy.get();
  const FloatingPointScope scope;
  Reduction reduction = ReductionOf(request, 1);
  if (NeedsWholeTensors(reduction.reduce)) reduction.reduce = ReduceOp::kSum;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const Tensor& tensor = request.tensors[i];
    const void* const from = copy != nullptr ? copy->at(i) : tensor.input;
    void* to = copy != nullptr && tensor.output != nullptr ? copy->at(i) : tensor.output;
    if (AllocatesOutput(request.kind)) {
      FRD_RETURN_IF_ERROR(AllocateOutput(operation, i, tensor.shape[0]));
      to = operation->outputs[i].memory.get();
    }
    if (Reduces(request.kind)) {
      const auto elements = static_cast<size_t>(ElementCount(tensor.shape));
      Reduce(tensor.dtype, reduction.reduce, &from, 1, elements, reduction.scale, to);
    } else if (to != from && tensor.size_bytes() > 0) {
      std::memcpy(to, from, tensor.size_bytes());
    }
  }
  if (TakesSplits(request.kind)) {
    for (const Tensor& tensor : request.tensors) operation->outputs.push_back(NumbersOutput({tensor.shape[0]}, false));
  }
  return Status::Ok();
}

}  // namespace

SingleRank::SingleRank(bool world_of_one) {
  if (world_of_one) sets_ = std::make_unique<ProcessSets>(MakeLayout({PeerInfo()}), 0);
}

ProcessSetPtr SingleRank::FindSet(int id) {
  std::lock_guard<std::mutex> lock(sets_mutex_);
  return sets_->Find(id);
}

// Changes of process sets carry no tensors; a join is over at once, with this rank as the last.
void SingleRank::Perform(const OperationPtr& operation) {
  const Request& request = operation->request;
  Status status;
  if (operation->host_copy) {
    status = PerformFromDevice(operation);
  } else if (CarriesTensors(request.kind)) {
    status = PerformOnHost(operation.get());
  }
  if (request.kind == OpKind::kJoin) operation->outputs = {NumbersOutput({0}, true)};
  if (ChangesSets(request.kind)) status = ChangeSets(operation.get());
  operation->CompleteAlone(status, /*announced=*/true);
}

Status SingleRank::ChangeSets(Operation* operation) {
  const Request& request = operation->request;
  std::lock_guard<std::mutex> lock(sets_mutex_);
  if (request.kind == OpKind::kAddProcessSet) {
    FRD_RETURN_IF_ERROR(sets_->CanAdd({0}));
    operation->outputs = {NumbersOutput({sets_->Add({0})}, true)};
    return Status::Ok();
  }
  const auto id = static_cast<int>(request.ranks[0]);
  FRD_RETURN_IF_ERROR(sets_->CanRemove(id));
  sets_->Remove(id);
  return Status::Ok();
}

// One copy at a time: HostCopies is for one thread, and any thread may submit.
Status SingleRank::PerformFromDevice(const OperationPtr& operation) {
  std::lock_guard<std::mutex> lock(copies_mutex_);
  return copies_.RunAlone(operation, [&operation] { return PerformOnHost(operation.get()); });
}

}  // namespace farandole
