#include "backends/nccl/communicator.h"

namespace farandole {

Status Communicator::Begin(const NcclUniqueId& id, int position, int size) {
  return Make([this, id, position, size] {
    NcclConfig config;
    return Call(nccl_.init, &handle_, size, id, position, &config);
  });
}

Status Communicator::Poll(bool* ready, int* code) {
  *ready = false;
  Status said;
  if (!caller_.TakeResult(&said)) return Status::Ok();
  FRD_RETURN_IF_ERROR(said);
  *ready = handle_ == nullptr;
  if (*ready) return Status::Ok();
  const int asked = nccl_.get_async_error.pointer(handle_, code);
  if (asked != kNcclSuccess) {
    *code = asked;
    return nccl_.Failed(nccl_.get_async_error.name, asked, handle_, device_->name());
  }
  if (*code == kNcclInProgress) return Status::Ok();
  if (*code != kNcclSuccess) return nccl_.Failed("an operation", *code, handle_, device_->name());
  *ready = !is_finishing_;
  if (*ready) return Status::Ok();
  return Make([this] {
    const Status destroyed = Call(nccl_.destroy, handle_);
    handle_ = nullptr;
    return destroyed;
  });
}

Status Communicator::Finish() {
  is_finishing_ = true;
  return Make([this] { return Call(nccl_.finalize, handle_); });
}

// What it answers changes nothing any more.
void Communicator::Abort() {
  Make([this] {
    if (handle_ == nullptr) return Status::Ok();
    const Status aborted = Call(nccl_.abort, handle_);
    handle_ = nullptr;
    return aborted;
  });
  caller_.Await();
}

}  // namespace farandole
