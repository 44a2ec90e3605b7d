#include "backends/nccl/communicators.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "common/log.h"

namespace farandole {

// ---- Communicator

Communicator::Communicator(const NcclLibrary& nccl, Device* device) : nccl_(nccl), device_(device) { thread_.Start(); }

void Communicator::Begin(const NcclUniqueId& id, int position, int size) {
  Make([this, id, position, size] {
    NcclConfig config;
    return Call(nccl_.init, &handle_, size, id, position, &config);
  });
}

void Communicator::Make(CallThread::Call calls) {
  thread_.Submit([self = shared_from_this(), calls = std::move(calls)] { return self->device_->Within(calls); });
}

Status Communicator::Poll(bool* ready, int* code) {
  *ready = false;
  Status said;
  if (!thread_.TakeResult(&said)) return Status::Ok();
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

std::vector<int> Communicators::PositionsOf(const ProcessSet& set) const {
  if (AreOfHosts(set)) {
    const int group = set.layout.group_of[static_cast<size_t>(set.position)];
    return set.layout.groups[static_cast<size_t>(group)];
  }
  std::vector<int> all;
  for (int position = 0; position < set.size(); ++position) all.push_back(position);
  return all;
}

void Communicators::Start(const ProcessSet& set, Device* device) {
  set_ = &set;
  device_ = device;
  mine_ = std::make_shared<PeerAddress>();
  mine_->device = device->identity();
  if (PositionsOf(set)[0] == set.position) AskForId();
}

// NCCL's first call looks for a network, so a thread makes it.
void Communicators::AskForId() {
  if (!id_thread_.has_started()) id_thread_.Start();
  id_thread_.Submit([&nccl = nccl_, device = device_, mine = mine_] {
    return device->Within([&] {
      const int code = nccl.get_unique_id.pointer(&mine->id);
      if (code == kNcclSuccess) return Status::Ok();
      return nccl.Failed(nccl.get_unique_id.name, code, nullptr, device->name());
    });
  });
}

Status Communicators::Poll(bool* moved, Communicator** made) {
  if (!is_gathering_) {
    Status asked;
    if (!id_thread_.TakeResult(&asked)) return Status::Ok();
    FRD_RETURN_IF_ERROR(asked);
    is_gathering_ = *moved = true;
    return allgather_.Start(*set_, std::string(reinterpret_cast<const char*>(mine_.get()), sizeof(*mine_)));
  }
  bool gathered = false;
  FRD_RETURN_IF_ERROR(allgather_.Poll(moved, &gathered));
  if (!gathered) return Status::Ok();
  is_gathering_ = false;
  auto fresh = std::make_shared<Communicator>(nccl_, device_);
  *made = fresh.get();
  communicators_[set_->id] = std::move(fresh);
  Connect();
  return Status::Ok();
}

void Communicators::Connect() {
  const std::vector<std::string> addresses = allgather_.peer_addresses();
  const std::vector<int> positions = PositionsOf(*set_);
  NcclUniqueId id;
  made_for_ = set_->id;
  ranks_.clear();
  devices_.clear();
  for (int position : positions) {
    PeerAddress address;
    std::memcpy(&address, addresses[static_cast<size_t>(position)].data(), sizeof(address));
    if (devices_.empty()) id = address.id;
    ranks_.push_back(set_->ranks[static_cast<size_t>(position)]);
    devices_.push_back(address.device);
  }
  const auto mine = std::find(positions.begin(), positions.end(), set_->position) - positions.begin();
  Find(set_->id)->Begin(id, static_cast<int>(mine), static_cast<int>(positions.size()));
}

// Names the hosts where there are several, since between hosts NCCL needs a network that it can use.
std::string Communicators::Advice(const ProcessSet& set) const {
  std::set<std::string> hosts;
  for (int position : PositionsOf(set)) {
    const int rank = set.ranks[static_cast<size_t>(position)];
    hosts.insert(world_->peers[static_cast<size_t>(rank)].host);
  }
  if (hosts.size() < 2) return " (NCCL_DEBUG=INFO lets it say why)";
  std::string names;
  for (const std::string& host : hosts) names += (names.empty() ? "" : ", ") + host;
  return " of the hosts " + names +
         " (check that NCCL can use a network between them: NCCL_SOCKET_IFNAME chooses one, NCCL_DEBUG=INFO lets "
         "it say why; where there is none, set FARANDOLE_NCCL_NETWORK=0 on all ranks)";
}

// Names ranks that share a device: that is the most frequent reason why NCCL cannot make a communicator.
Status Communicators::Explained(const Status& status, const ProcessSet& set) const {
  if (status.ok()) return status;
  for (size_t i = 0; i < devices_.size() && set.id == made_for_; ++i) {
    for (size_t j = i + 1; j < devices_.size(); ++j) {
      if (devices_[i] != devices_[j]) continue;
      return Status(status.code(), status.message(), "; ", world_->NameOf(ranks_[i]), " and ",
                    world_->NameOf(ranks_[j]),
                    " use the same GPU: give each its own, by local_rank() or CUDA_VISIBLE_DEVICES; or set "
                    "NCCL_MULTI_RANK_GPU_ENABLE=1, with NCCL 2.30 or newer");
    }
  }
  return {status.code(), status.message(), "; it was connecting the ranks", Advice(set)};
}

void Communicators::Forget(int set_id) {
  if (set_id == made_for_) made_for_ = -1;
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
    int code = 0;
    const bool has_failed = !communicator->Poll(&ready, &code).ok();
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
  if (!in_order) return AbortAll(nullptr);
  for (auto& [id, communicator] : communicators_) Finish(std::move(communicator));
  communicators_.clear();
  const TimePoint end = Now() + patience_.order;
  while (!leaving_.empty() && Now() < end) {
    if (!PollLeaving()) std::this_thread::sleep_for(kPollInterval);
  }
  return AbortAll(nullptr);
}

bool Communicators::Abort(Communicator* working) {
  if (is_gathering_) allgather_.Abort();
  is_gathering_ = false;
  return AbortAll(working);
}

bool Communicators::AbortAll(Communicator* working) {
  std::vector<std::shared_ptr<Communicator>> all = std::move(leaving_);
  for (auto& [id, communicator] : communicators_) all.push_back(std::move(communicator));
  leaving_.clear();
  communicators_.clear();
  AbortThose(all, working);
  return !has_left_some_alone_;
}

// Each communicator ends in its own thread: NCCL may never return from one of them, which must not keep the others'
// memory and devices. `working` begins earlier, since the end of another communicator frees memory, which waits for the
// calls of `working` on the device, and these wait for other ranks.
void Communicators::AbortThose(const std::vector<std::shared_ptr<Communicator>>& those, Communicator* working) {
  if (those.empty()) return;
  const TimePoint begin = Now();
  if (working != nullptr) {
    working->BeginAbort();
    working->AwaitCalls(begin + patience_.abort / 5);
  }
  for (const auto& communicator : those) {
    if (communicator.get() != working) communicator->BeginAbort();
  }
  bool all_ended = true;
  const char* call = nullptr;
  for (const auto& communicator : those) {
    if (communicator->AwaitCalls(begin + patience_.abort)) continue;
    all_ended = false;
    if (call == nullptr) call = communicator->CallUnderWay();
  }
  if (all_ended) return;
  has_left_some_alone_ = true;
  Log(LogLevel::kWarning, nccl_.name(), " has not come back within ", patience_.abort.count() / 1000, " s from ",
      (call != nullptr ? call : nccl_.abort.name),
      ", although what it did was given up, and is left alone with the memory that it may still use; end this process "
      "rather than going on with its GPU");
}

}  // namespace farandole
