#include "engine/naming.h"

#include <algorithm>

namespace farandole {
namespace {

constexpr size_t kWindow = 64;         // names that the unnamed operations of one signature take in turn
constexpr size_t kMostWindows = 1024;  // signatures remembered

// Null when it is done, or nobody asks any more.
OperationPtr InFlight(const std::weak_ptr<Operation>& operation) {
  OperationPtr found = operation.lock();
  return found && !found->done() ? found : nullptr;
}

}  // namespace

OperationPtr Naming::Name(const OperationPtr& operation) {
  const Request& request = operation->request;
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t turn = next_turn_[request.process_set]++;
  if (ChangesSets(request.kind)) {
    // Never known, so that rank 0 always hears of it.
    operation->SetName("#sets." + std::to_string(turn), turn);
    return nullptr;
  }
  const uint64_t fingerprint = Fingerprint(SignatureOf(request));
  if (windows_.size() >= kMostWindows) ForgetIdleWindows();
  Window& window = windows_[fingerprint];
  window.resize(kWindow);
  const size_t at = static_cast<size_t>(turn) % kWindow;
  OperationPtr before = InFlight(window[at]);
  window[at] = operation;
  operation->SetName("#" + std::to_string(fingerprint) + "." + std::to_string(at), turn);
  return before;
}

// A signature that comes back later begins a new window. That is safe: none of its names is in flight.
void Naming::ForgetIdleWindows() {
  for (auto it = windows_.begin(); it != windows_.end();) {
    const Window& window = it->second;
    it = std::any_of(window.begin(), window.end(), &InFlight) ? std::next(it) : windows_.erase(it);
  }
}

Turns Naming::turns() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_turn_;
}

// The most that any rank counted holds for all, so that the next turn is new on every rank.
void Naming::CatchUp(const Turns& turns) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [set, turn] : turns) next_turn_[set] = std::max(next_turn_[set], turn);
}

void Naming::Forget(int set) {
  std::lock_guard<std::mutex> lock(mutex_);
  next_turn_.erase(set);
}

}  // namespace farandole
