#include "backends/nccl/communicators.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "common/log.h"

namespace farandole {

// ---- Communicator

Communicator::Communicator(const NcclLibrary& nccl, Device* device) : nccl_(nccl), device_(device) {
  mine_.device = device->identity();
}

void Communicator::MakeId() {
  Make([this] { return Call(nccl_.get_unique_id, &mine_.id); });
}

void Communicator::Begin(const std::vector<std::string>& addresses, int position) {
  std::vector<Address> members(addresses.size());
  for (size_t i = 0; i < members.size(); ++i) {
    std::memcpy(&members[i], addresses[i].data(), sizeof(Address));
    devices_.push_back(members[i].device);
  }
  Make([this, id = members[0].id, position, size = static_cast<int>(members.size())] {
    NcclConfig config;
    return Call(nccl_.init, &handle_, size, id, position, &config);
  });
}

void Communicator::Make(CallThread::Call calls) {
  thread_.Submit([self = shared_from_this(), calls = std::move(calls)] { return self->device_->Within(calls); });
}

Status Communicator::Poll(bool* ready) {
  *ready = false;
  Status made;
  if (!thread_.TakeResult(&made)) return Status::Ok();
  FRD_RETURN_IF_ERROR(made);
  *ready = handle_ == nullptr;
  if (*ready) return Status::Ok();
  const int asked = nccl_.get_async_error.pointer(handle_, &code_);
  const bool is_known = asked == kNcclSuccess;
  if (!is_known) code_ = asked;
  if (code_ == kNcclInProgress) return Status::Ok();
  if (code_ != kNcclSuccess)
    return nccl_.Failed(is_known ? "an operation" : nccl_.get_async_error.name, code_, handle_, device_->name());
  *ready = !is_finishing_;
  if (*ready) return Status::Ok();
  Make([this] {
    const Status destroyed = Call(nccl_.destroy, handle_);
    handle_ = nullptr;
    return destroyed;
  });
  return Status::Ok();
}

void Communicator::Finish() {
  is_finishing_ = true;
  Make([this] { return Call(nccl_.finalize, handle_); });
}

// NCCL's answer is not needed any more.
void Communicator::BeginAbort() {
  Make([this] {
    if (handle_ == nullptr) return Status::Ok();
    const Status aborted = Call(nccl_.abort, handle_);
    handle_ = nullptr;
    return aborted;
  });
}

// ---- Communicators

Communicator* Communicators::Find(int set_id) const {
  const auto found = communicators_.find(set_id);
  return found != communicators_.end() ? found->second.get() : nullptr;
}

Communicator* Communicators::Open(const ProcessSet& set, Device* device) {
  auto fresh = std::make_shared<Communicator>(nccl_, device);
  if (set.position == 0) fresh->MakeId();
  communicators_[set.id] = fresh;
  return fresh.get();
}

Status Communicators::Connect(const ProcessSet& set, bool* moved, bool* begun) {
  Communicator* const communicator = Find(set.id);
  if (!is_gathering_) {
    is_gathering_ = *moved = true;
    return allgather_.Start(set, communicator->address());
  }
  FRD_RETURN_IF_ERROR(allgather_.Poll(moved, begun));
  if (!*begun) return Status::Ok();
  is_gathering_ = false;
  communicator->Begin(allgather_.peer_addresses(), set.position);
  return Status::Ok();
}

// Names the hosts where there are several, since between hosts NCCL needs a network that it can use.
std::string Communicators::Advice(const ProcessSet& set) const {
  std::set<std::string> hosts;
  for (int rank : set.ranks) hosts.insert(world_->peers[static_cast<size_t>(rank)].host);
  if (hosts.size() < 2) return " (NCCL_DEBUG=INFO lets it say why)";
  std::string names;
  for (const std::string& host : hosts) names += (names.empty() ? "" : ", ") + host;
  return " of the hosts " + names +
         " (check that NCCL can use a network between them: NCCL_SOCKET_IFNAME chooses one, NCCL_DEBUG=INFO lets "
         "it say why; where there is none, set FARANDOLE_NCCL_NETWORK=0 on all ranks)";
}

// Names ranks that share a device: that is the most frequent reason why NCCL cannot make a communicator.
Status Communicators::Explained(const Status& status, const ProcessSet& set) const {
  const std::vector<DeviceIdentity>& devices = Find(set.id)->devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = i + 1; j < devices.size(); ++j) {
      if (devices[i] != devices[j]) continue;
      return Status(status.code(), status.message(), "; ", world_->NameOf(set.ranks[i]), " and ",
                    world_->NameOf(set.ranks[j]),
                    " use the same GPU: give each its own, by local_rank() or CUDA_VISIBLE_DEVICES; or set "
                    "NCCL_MULTI_RANK_GPU_ENABLE=1, with NCCL 2.30 or newer");
    }
  }
  return {status.code(), status.message(), "; it was connecting the ranks", Advice(set)};
}

void Communicators::Forget(int set_id) {
  const auto found = communicators_.find(set_id);
  if (found == communicators_.end()) return;
  Finish(std::move(found->second));
  communicators_.erase(found);
}

void Communicators::Finish(std::shared_ptr<Communicator> communicator) {
  communicator->Finish();
  leaving_.push_back(std::move(communicator));
}

bool Communicators::PollLeaving() {
  std::vector<std::shared_ptr<Communicator>> failed;
  const auto is_gone = [&failed](const std::shared_ptr<Communicator>& communicator) {
    bool ready = false;
    const bool has_failed = !communicator->Poll(&ready).ok();
    if (has_failed) failed.push_back(communicator);
    return has_failed || ready;
  };
  const auto gone = std::remove_if(leaving_.begin(), leaving_.end(), is_gone);
  const bool any = gone != leaving_.end();
  leaving_.erase(gone, leaving_.end());
  AbortThose(failed);
  return any;
}

bool Communicators::Close(bool in_order) {
  if (!in_order) return Abort(nullptr);
  for (auto& [id, communicator] : communicators_) Finish(std::move(communicator));
  communicators_.clear();
  const TimePoint end = Now() + patience_ * 2 / 5;
  while (!leaving_.empty() && Now() < end) {
    if (!PollLeaving()) std::this_thread::sleep_for(kPollInterval);
  }
  return Abort(nullptr);
}

bool Communicators::Abort(Communicator* working) {
  if (is_gathering_) allgather_.Abort();
  is_gathering_ = false;
  std::vector<std::shared_ptr<Communicator>> all = std::move(leaving_);
  for (auto& [id, communicator] : communicators_) all.push_back(std::move(communicator));
  leaving_.clear();
  communicators_.clear();
  AbortThose(all, working);
  return !has_abandoned_calls_;
}

// Each communicator ends in its own thread: NCCL may never return from one of them, which must not keep the others'
// memory and devices. `working` begins earlier, since the end of another communicator frees memory, which waits for the
// calls of `working` on the device, and these wait for other ranks.
void Communicators::AbortThose(const std::vector<std::shared_ptr<Communicator>>& those, Communicator* working) {
  if (those.empty()) return;
  const TimePoint begin = Now();
  if (working != nullptr) {
    working->BeginAbort();
    working->AwaitCalls(begin + patience_ / 5);
  }
  for (const auto& communicator : those) {
    if (communicator.get() != working) communicator->BeginAbort();
  }
  bool all_ended = true;
  const char* call = nullptr;
  for (const auto& communicator : those) {
    if (communicator->AwaitCalls(begin + patience_)) continue;
    all_ended = false;
    if (call == nullptr) call = communicator->CallUnderWay();
  }
  if (all_ended) return;
  has_abandoned_calls_ = true;
  Log(LogLevel::kWarning, nccl_.name(), " has not come back within ", patience_.count() / 1000, " s from ",
      (call != nullptr ? call : nccl_.abort.name),
      ", although what it did was given up, and is left alone with the memory that it may still use; end this process "
      "rather than going on with its GPU");
}

}  // namespace farandole
