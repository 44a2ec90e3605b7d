#include "engine/host_copy.h"

#include <algorithm>

#include "engine/on_device.h"

namespace farandole {
namespace {

constexpr size_t kLine = 64;

size_t WholeLines(size_t size_bytes) { return (size_bytes + kLine - 1) / kLine * kLine; }

}  // namespace

CopyLane::~CopyLane() {
  for (Stream stream : {in, out}) {
    if (stream != nullptr) device->DestroyStream(stream);
  }
}

Status CopyLane::Open() {
  FRD_RETURN_IF_ERROR(device->CreateStream(&in));
  return device->CreateStream(&out);
}

HostCopy::HostCopy(Device* device, const Request& request, int rank)
    : device_(device), request_(request), is_root_(OnlyRootSends(request.kind) && request.root == rank) {
  for (const Tensor& tensor : request.tensors) {
    offsets_.push_back(size_bytes_);
    size_bytes_ += WholeLines(tensor.size_bytes());
  }
}

HostCopy::~HostCopy() {
  if (event_ != nullptr) device_->DestroyEvent(event_);
}

bool HostCopy::Reads() const { return !OnlyRootSends(request_.kind) || is_root_; }

// The root of a broadcast has what it sends; results that the core has allocated are in host memory.
bool HostCopy::Writes(const Tensor& tensor) const {
  if (tensor.output == nullptr || tensor.size_bytes() == 0) return false;
  return !is_root_ || tensor.output != tensor.input;
}

Status HostCopy::Keep(Status status) {
  if (!status.ok()) failed_ = status;
  return status;
}

Status HostCopy::CopyIn(CopyLane* lane) {
  FRD_RETURN_IF_ERROR(failed_);
  lane_ = lane;
  if (event_ == nullptr) FRD_RETURN_IF_ERROR(device_->CreateEvent(&event_));
  FRD_RETURN_IF_ERROR(lane->pool.Take(size_bytes_, &block_));
  state_ = State::kComing;
  return Keep(EnqueueCopyIn());
}

// The stream waits where nothing is read too: the results may overwrite what the framework still computes with.
Status HostCopy::EnqueueCopyIn() {
  for (size_t i = 0; i < request_.tensors.size(); ++i) {
    const Tensor& tensor = request_.tensors[i];
    const size_t size_bytes = tensor.size_bytes();
    if (tensor.ready_event != nullptr) FRD_RETURN_IF_ERROR(device_->WaitInStream(lane_->in, tensor.ready_event));
    if (size_bytes == 0 || !Reads()) continue;
    FRD_RETURN_IF_ERROR(device_->CopyToHost(at(i), tensor.input, size_bytes, lane_->in));
  }
  return device_->Record(event_, lane_->in);
}

Status HostCopy::CopyOut() {
  state_ = State::kReturning;
  return Keep(EnqueueCopyOut());
}

Status HostCopy::EnqueueCopyOut() {
  for (size_t i = 0; i < request_.tensors.size(); ++i) {
    const Tensor& tensor = request_.tensors[i];
    if (!Writes(tensor)) continue;
    returns_ = true;
    FRD_RETURN_IF_ERROR(device_->CopyToDevice(tensor.output, at(i), tensor.size_bytes(), lane_->out));
  }
  if (returns_) return device_->Record(event_, lane_->out);
  state_ = State::kOver;
  return Status::Ok();
}

Status HostCopy::Poll() {
  FRD_RETURN_IF_ERROR(failed_);
  if (state_ != State::kComing && state_ != State::kReturning) return Status::Ok();
  bool happened = false;
  FRD_RETURN_IF_ERROR(Keep(device_->HasHappened(event_, &happened)));
  if (happened) state_ = state_ == State::kComing ? State::kHere : State::kOver;
  return Status::Ok();
}

void HostCopy::ReleaseMemory() {
  if (block_.memory != nullptr) lane_->pool.GiveBack(block_);
  block_ = Block();
}

Status MakeHostCopy(const Devices& devices, const Request& request, int rank, std::shared_ptr<HostCopy>* copy) {
  Device* found = nullptr;
  FRD_RETURN_IF_ERROR(FindDeviceOf(devices, request, &found));
  const auto has_bytes = [](const Tensor& tensor) { return tensor.size_bytes() > 0; };
  const bool any = std::any_of(request.tensors.begin(), request.tensors.end(), has_bytes);
  if (found != nullptr && any) *copy = std::make_shared<HostCopy>(found, request, rank);
  return Status::Ok();
}

}  // namespace farandole
