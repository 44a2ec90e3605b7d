#include "backends/nccl/communicators.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <set>
#include <thread>

#include "common/clock.h"
#include "common/log.h"

namespace farandole {
namespace {

// How long the end of all may take.
constexpr std::chrono::milliseconds kPatience{2000};
constexpr std::chrono::seconds kAbortPatience{5};
constexpr std::chrono::microseconds kPollInterval{50};

}  // namespace

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

Status Communicators::Introduce(const ProcessSet& set, Device* device) {
  set_ = &set;
  device_ = device;
  Introduction mine;
  mine.device = device->identity();
  if (PositionsOf(set)[0] == set.position) {
    FRD_RETURN_IF_ERROR(device->Within([&] {
      const int code = nccl_.get_unique_id.pointer(&mine.id);
      if (code == kNcclSuccess) return Status::Ok();
      return nccl_.Failed(nccl_.get_unique_id.name, code, nullptr, device->name());
    }));
  }
  is_introducing_ = true;
  return allgather_.Start(set, std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)));
}

Status Communicators::Poll(bool* moved, Communicator** made) {
  bool introduced = false;
  FRD_RETURN_IF_ERROR(allgather_.Poll(moved, &introduced));
  if (!introduced) return Status::Ok();
  is_introducing_ = false;
  auto fresh = std::make_shared<Communicator>(nccl_, device_);
  *made = fresh.get();
  communicators_[set_->id] = std::move(fresh);
  return Meet();
}

Status Communicators::Meet() {
  const std::vector<std::string> introductions = allgather_.peer_addresses();
  const std::vector<int> positions = PositionsOf(*set_);
  NcclUniqueId id;
  made_for_ = set_->id;
  ranks_.clear();
  devices_.clear();
  for (int position : positions) {
    Introduction introduction;
    std::memcpy(&introduction, introductions[static_cast<size_t>(position)].data(), sizeof(introduction));
    if (devices_.empty()) id = introduction.id;
    ranks_.push_back(set_->ranks[static_cast<size_t>(position)]);
    devices_.push_back(introduction.device);
  }
  const auto mine = std::find(positions.begin(), positions.end(), set_->position) - positions.begin();
  return Explained(Find(set_->id)->Begin(id, static_cast<int>(mine), static_cast<int>(positions.size())), *set_);
}

// Between hosts NCCL needs a network that it can use.
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
         " (is there a network between them that NCCL can use? NCCL_SOCKET_IFNAME chooses one, NCCL_DEBUG=INFO lets "
         "it say why; where there is none, set FARANDOLE_NCCL_NETWORK=0 on all ranks)";
}

// Ranks that share a device are what most often keeps a communicator from being made.
Status Communicators::Explained(const Status& status, const ProcessSet& set) const {
  if (status.ok()) return status;
  for (size_t i = 0; i < devices_.size() && set.id == made_for_; ++i) {
    for (size_t j = i + 1; j < devices_.size(); ++j) {
      if (devices_[i] != devices_[j]) continue;
      return {status.code(), status.message() + "; " + world_->NameOf(ranks_[i]) + " and " + world_->NameOf(ranks_[j]) +
                                 " use the same GPU: give each its own, by local_rank() or CUDA_VISIBLE_DEVICES; "
                                 "or set NCCL_MULTI_RANK_GPU_ENABLE=1, with NCCL 2.30 or newer"};
    }
  }
  return {status.code(), status.message() + "; it was connecting the ranks" + Advice(set)};
}

void Communicators::Forget(int set_id) {
  if (set_id == made_for_) made_for_ = -1;
  const auto found = communicators_.find(set_id);
  if (found == communicators_.end()) return;
  Finish(std::move(found->second));
  communicators_.erase(found);
}

void Communicators::Finish(std::shared_ptr<Communicator> communicator) {
  if (communicator->Finish().ok()) {
    leaving_.push_back(std::move(communicator));
  } else {
    AbortThose({std::move(communicator)});
  }
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
  AbortThose(std::move(failed));
  return any;
}

bool Communicators::Close(bool in_order) {
  if (!in_order) return AbortAll(nullptr);
  for (auto& [id, communicator] : communicators_) Finish(std::move(communicator));
  communicators_.clear();
  const TimePoint end = Now() + kPatience;
  while (!leaving_.empty() && Now() < end) {
    if (!PollLeaving()) std::this_thread::sleep_for(kPollInterval);
  }
  return AbortAll(nullptr);
}

bool Communicators::Abort(Communicator* working) {
  if (is_introducing_) allgather_.Abort();
  is_introducing_ = false;
  return AbortAll(working);
}

bool Communicators::AbortAll(Communicator* working) {
  std::vector<std::shared_ptr<Communicator>> all = std::move(leaving_);
  for (auto& [id, communicator] : communicators_) all.push_back(std::move(communicator));
  leaving_.clear();
  communicators_.clear();
  std::stable_partition(all.begin(), all.end(), [working](const auto& each) { return each.get() == working; });
  AbortThose(std::move(all));
  return !has_left_some_alone_;
}

void Communicators::AbortThose(std::vector<std::shared_ptr<Communicator>> those) {
  if (those.empty()) return;
  std::promise<void> ending;
  const std::future<void> end = ending.get_future();
  std::thread([those, ending = std::move(ending)]() mutable {
    for (const auto& communicator : those) communicator->Abort();
    those.clear();
    ending.set_value();
  }).detach();
  if (end.wait_for(kAbortPatience) == std::future_status::ready) return;
  has_left_some_alone_ = true;
  const char* call = nullptr;
  for (size_t i = 0; i < those.size() && call == nullptr; ++i) call = those[i]->CallUnderWay();
  Log(LogLevel::kWarning, nccl_.name() + " has not come back within " + std::to_string(kAbortPatience.count()) +
                              " s from " + (call != nullptr ? call : nccl_.abort.name) +
                              ", although what it did was given up, and is left alone with the memory that it may "
                              "still use; end this process rather than going on with its GPU");
}

}  // namespace farandole
