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
  const int64_t sequence_number = next_sequence_number_[request.process_set]++;
  if (ChangesSets(request.kind)) {
    // Never known, so that rank 0 always hears of it.
    operation->SetName("#sets." + std::to_string(sequence_number), sequence_number);
    return nullptr;
  }
  const uint64_t fingerprint = Fingerprint(SignatureOf(request));
  if (windows_.size() >= kMostWindows) ForgetIdleWindows();
  Window& window = windows_[fingerprint];
  window.resize(kWindow);
  const size_t at = static_cast<size_t>(sequence_number) % kWindow;
  OperationPtr before = InFlight(window[at]);
  window[at] = operation;
  operation->SetName("#" + std::to_string(fingerprint) + "." + std::to_string(at), sequence_number);
  return before;
}

// A signature that comes back later begins a new window. That is safe: none of its names is in flight.
void Naming::ForgetIdleWindows() {
  for (auto it = windows_.begin(); it != windows_.end();) {
    const Window& window = it->second;
    it = std::any_of(window.begin(), window.end(), &InFlight) ? std::next(it) : windows_.erase(it);
  }
}

SequenceNumbers Naming::sequence_numbers() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_sequence_number_;
}

// The most that any rank counted holds for all, so that the next sequence_number is new on every rank.
void Naming::CatchUp(const SequenceNumbers& sequence_numbers) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [set, sequence_number] : sequence_numbers)
    next_sequence_number_[set] = std::max(next_sequence_number_[set], sequence_number);
}

void Naming::Forget(int set) {
  std::lock_guard<std::mutex> lock(mutex_);
  next_sequence_number_.erase(set);
}

}  // namespace farandole
