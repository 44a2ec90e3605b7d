#include "engine/naming.h"

#include <algorithm>

namespace farandole {
namespace {

constexpr size_t kWindow = 64;         // names that the unnamed operations of one signature take in turn
constexpr size_t kMostWindows = 1024;  // signatures remembered

// In flight, as far as anybody still asks.
bool IsBusy(const std::weak_ptr<Operation>& operation) {
  const OperationPtr held = operation.lock();
  return held && !held->done();
}

}  // namespace

void Naming::Name(const OperationPtr& operation) {
  const Request& request = operation->request;
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t turn = next_turn_[request.process_set]++;
  if (ChangesSets(request.kind)) {
    // Never known, so that rank 0 always hears of it.
    operation->SetName("#sets." + std::to_string(turn), turn);
    return;
  }
  const uint64_t fingerprint = Fingerprint(operation->Describe().signature);
  if (windows_.size() >= kMostWindows) ForgetIdleWindows();
  Window& window = windows_[fingerprint];
  window.resize(kWindow);
  std::weak_ptr<Operation>& slot = window[static_cast<size_t>(turn) % kWindow];
  const bool busy = IsBusy(slot);
  const std::string suffix = busy ? "x" + std::to_string(turn) : std::to_string(static_cast<size_t>(turn) % kWindow);
  if (!busy) slot = operation;
  operation->SetName("#" + std::to_string(fingerprint) + "." + suffix, turn);
}

void Naming::ForgetIdleWindows() {
  for (auto it = windows_.begin(); it != windows_.end();) {
    const Window& window = it->second;
    it = std::any_of(window.begin(), window.end(), &IsBusy) ? std::next(it) : windows_.erase(it);
  }
}

Turns Naming::turns() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_turn_;
}

void Naming::CatchUp(const Turns& turns) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [set, turn] : turns) next_turn_[set] = std::max(next_turn_[set], turn);
}

void Naming::Forget(int set) {
  std::lock_guard<std::mutex> lock(mutex_);
  next_turn_.erase(set);
}

}  // namespace farandole
