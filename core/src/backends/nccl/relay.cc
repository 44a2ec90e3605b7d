#include "backends/nccl/relay.h"

namespace farandole {
namespace {

const std::byte* At(const void* memory, size_t offset) { return static_cast<const std::byte*>(memory) + offset; }
std::byte* At(void* memory, size_t offset) { return static_cast<std::byte*>(memory) + offset; }

}  // namespace

Status Relay::Begin(const Task& task, Communicator* communicator, DeviceStream* stream) {
  task_ = &task;
  communicator_ = communicator;
  stream_ = stream;
  exchange_ = &hosts_.try_emplace(task.set->id, world_, *task.set).first->second.exchange;
  const Plan plan = PlanOf(task, settings_, world_->rank);
  MessageTag tag;
  tag.id = task.set->id;
  tag.plan = plan.code();
  exchange_->Begin(plan.algorithm, tag);
  is_back_ = false;
  total_bytes_ = task.TotalBytes();
  element_bytes_ = Reduces() ? SizeOf(task.dtype) : 1;
  shard_count_ = partition().ShardCount(total_bytes_);
  owned_ = OwnedBy(partition().member);
  FRD_RETURN_IF_ERROR(FindTensors(task, stream, &tensors_));
  FRD_RETURN_IF_ERROR(FindPlaces());
  FRD_RETURN_IF_ERROR(AwaitInputs(task, stream));
  calls_.Begin(task, IsAlone() ? Scale() : task.scale, communicator,
               [this](const NcclReduction& reduction, CallList* calls) {
                 if (Reduces()) return ListReduce(reduction, calls);
                 if (IsInRootsHost()) ListBroadcast(calls);
               });
  return Status::Ok();
}

Range Relay::OwnedBy(int member) const {
  const auto width = static_cast<int64_t>(element_bytes_);
  const Range elements =
      partition().OwnedBy(member, shard_count_, static_cast<int64_t>(total_bytes_) / width, element_bytes_);
  return {elements.begin * width, elements.end * width};
}

// True when NCCL's own cut of a vector, into as many equal parts as there are members, equals that of Partition.
bool Relay::IsEven() const {
  const int members = partition().member_count();
  if (tensors_.size() != 1 || owned_.size() * members != static_cast<int64_t>(total_bytes_)) return false;
  for (int m = 0; m < members; ++m) {
    if (OwnedBy(m).size() != owned_.size()) return false;
  }
  return true;
}

// Between the way out and the way back, what this member owns lies in one piece: in its output where that is contiguous
// there, else in scratch.
Status Relay::FindPlaces() {
  place_ = on_host_ = nullptr;
  if (carried_bytes() == 0) return Status::Ok();
  FRD_RETURN_IF_ERROR(stream_->pinned().Take(carried_bytes()));
  on_host_ = stream_->pinned().memory();
  FRD_RETURN_IF_ERROR(ForEachPart(tensors_, owned_, [this](const IoBuffer& tensor, size_t at, size_t, size_t bytes) {
    if (bytes == carried_bytes()) place_ = At(tensor.output, at);
    return Status::Ok();
  }));
  const bool wants_place = place_ == nullptr && goes_back();
  if (!wants_place) return Status::Ok();
  FRD_RETURN_IF_ERROR(stream_->on_device().Take(carried_bytes()));
  place_ = stream_->on_device().memory();
  return Status::Ok();
}

// Every member is the root of a reduction of its own part. For the other parts it passes an output that NCCL does not
// write.
void Relay::ListReduce(const NcclReduction& reduction, CallList* calls) const {
  const NcclComm comm = communicator_->handle();
  const NcclType type = NcclTypeOf(task_->dtype);
  if (IsEven()) {
    return calls->Add(nccl_.reduce_scatter, tensors_[0].input, static_cast<void*>(place_),
                      carried_bytes() / element_bytes_, type, reduction, comm, stream_->stream());
  }
  for (int m = 0; m < partition().member_count(); ++m) {
    const auto to_member = [&](const IoBuffer& tensor, size_t at, size_t in_range, size_t bytes) {
      void* const to = IsMine(m) ? place_ + in_range : At(tensor.output, at);
      calls->Add(nccl_.reduce, static_cast<const void*>(At(tensor.input, at)), to, bytes / element_bytes_, type,
                 reduction, m, comm, stream_->stream());
      return Status::Ok();
    };
    ForEachPart(tensors_, OwnedBy(m), to_member);
  }
}

void Relay::ListBroadcast(CallList* calls) const {
  const int root = partition().layout->member_of[static_cast<size_t>(task_->root)];
  for (const IoBuffer& tensor : tensors_) {
    calls->Add(nccl_.broadcast, tensor.input, tensor.output, tensor.size_bytes, NcclType::kUint8, root,
               communicator_->handle(), stream_->stream());
  }
}

Status Relay::Follow() {
  if (is_back_ || carried_bytes() == 0) return Status::Ok();
  Device* const device = stream_->device();
  if (Reduces()) return device->CopyToHost(on_host_, place_, carried_bytes(), stream_->stream());
  if (!IsInRootsHost()) return Status::Ok();
  return ForEachPart(tensors_, owned_, [&](const IoBuffer& tensor, size_t at, size_t in_range, size_t bytes) {
    return device->CopyToHost(on_host_ + in_range, At(tensor.output, at), bytes, stream_->stream());
  });
}

// Factors are applied inside the hosts: by NCCL, or by Fold here where this rank is the only one of its host, since
// NCCL's kernel for one rank leaves out elements.
void Relay::Cross() {
  calls_.End();
  const auto count = static_cast<int64_t>(total_bytes_ / element_bytes_);
  if (Reduces()) {
    if (IsAlone() && !task_->scale.IsIdentity()) {
      const void* const source = on_host_;
      Fold(task_->dtype, task_->reduce, &source, 1, static_cast<size_t>(count), task_->scale, on_host_);
    }
    exchange_->Allreduce(*task_, Scale(), on_host_, count, shard_count_);
  } else {
    exchange_->Broadcast(on_host_, count, shard_count_, RootsHost());
  }
}

Status Relay::PollCross(bool* moved, bool* done) {
  FRD_RETURN_IF_ERROR(exchange_->Advance(moved));
  *done = exchange_->done();
  return Status::Ok();
}

Status Relay::Return() {
  is_back_ = true;
  if (carried_bytes() > 0)
    FRD_RETURN_IF_ERROR(stream_->device()->CopyToDevice(place_, on_host_, carried_bytes(), stream_->stream()));
  calls_.Begin(communicator_, [this](CallList* calls) { ListReturn(calls); });
  return Status::Ok();
}

void Relay::ListReturn(CallList* calls) const {
  const NcclComm comm = communicator_->handle();
  if (IsEven()) {
    return calls->Add(nccl_.all_gather, static_cast<const void*>(place_), tensors_[0].output, carried_bytes(),
                      NcclType::kUint8, comm, stream_->stream());
  }
  for (int m = 0; m < partition().member_count(); ++m) {
    const auto from_member = [&](const IoBuffer& tensor, size_t at, size_t in_range, size_t bytes) {
      void* const to = At(tensor.output, at);
      const void* const from = IsMine(m) ? place_ + in_range : to;
      calls->Add(nccl_.broadcast, from, to, bytes, NcclType::kUint8, m, comm, stream_->stream());
      return Status::Ok();
    };
    ForEachPart(tensors_, OwnedBy(m), from_member);
  }
}

void Relay::Abort() {
  if (exchange_ != nullptr) exchange_->Abort();
}

// The exchange of the last task may be this set's, and is not used any more.
void Relay::Forget(int set_id) {
  const auto found = hosts_.find(set_id);
  if (found == hosts_.end()) return;
  if (exchange_ == &found->second.exchange) exchange_ = nullptr;
  hosts_.erase(found);
}

}  // namespace farandole
