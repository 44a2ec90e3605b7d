#include "operation/naming.h"

#include <algorithm>
#include <iterator>

#include "algorithms/plan.h"

namespace farandole {
namespace {

// The names of one signature. Each name of a small operation has its own buffer slots, so larger ones have fewer names,
// and less memory passes through the caches (docs/benchmarks/shared-memory.md#names).
constexpr size_t kMaxNames = 64;
constexpr int64_t kNamesBytes = 1 << 20;  // data of one rank under all names of a signature
constexpr size_t kMaxPools = 1024;        // signatures remembered

size_t NamesFor(const Signature& signature) {
  const int64_t bytes = signature.TotalBytes();
  if (signature.kind != OpKind::kAllreduce || bytes > SlotLimitBytes(2)) return kMaxNames;
  return std::min(kMaxNames, static_cast<size_t>(kNamesBytes / std::max(bytes, int64_t{1})));
}

// Calls that wait are never in flight at the same time, unless they come from several threads.
size_t NamesForAwaited(const Signature& signature) {
  return MayHaveSlots(signature.kind, signature.TotalBytes()) ? 1 : NamesFor(signature);
}

// Returns null when the operation is done or destroyed.
OperationPtr InFlight(const std::weak_ptr<Operation>& operation) {
  OperationPtr found = operation.lock();
  return found && !found->done() ? found : nullptr;
}

}  // namespace

Naming::Reservation Naming::Name(Operation* operation) {
  const Request& request = operation->request;
  int64_t& next = next_sequence_number_[request.process_set];
  if (ChangesSets(request.kind)) {
    // A new name each time, so that rank 0 always receives its description.
    operation->SetName("#sets." + std::to_string(next), next);
    return {&next, nullptr};
  }
  PooledName& pooled = FindName(request, next, operation->awaited);
  operation->SetName(pooled.name, next);
  operation->awaited = latest_pool_->size() == 1;
  return {&next, &pooled};
}

Naming::Reservation Naming::Reserve(const RequestView& request) {
  const auto next = next_sequence_number_.find(request.process_set);
  if (next == next_sequence_number_.end()) return {};
  PooledName& pooled = FindName(request, next->second, /*awaited=*/true);
  return InFlight(pooled.latest) ? Reservation() : Reservation(&next->second, &pooled);
}

OperationPtr Naming::Reservation::before() const { return pooled_ != nullptr ? InFlight(pooled_->latest) : nullptr; }

int64_t Naming::NextNumber(int set) const {
  const auto next = next_sequence_number_.find(set);
  return next == next_sequence_number_.end() ? 0 : next->second;
}

void Naming::UseFullPool(const Signature& signature) {
  const auto pool = pools_.find(Fingerprint(signature));
  if (pool != pools_.end() && pool->second.size() == 1) pool->second.resize(NamesFor(signature));
}

// Consecutive calls usually have the same signature.
template <typename AnyRequest>
Naming::PooledName& Naming::FindName(const AnyRequest& request, int64_t sequence_number, bool awaited) {
  if (latest_pool_ == nullptr || !Matches(request, latest_signature_)) {
    latest_pool_ = nullptr;  // in case something throws before it matches latest_signature_ again
    if (pools_.size() >= kMaxPools) ForgetIdlePools();
    latest_signature_ = SignatureOf(request);
    Pool* const pool = &pools_[Fingerprint(latest_signature_)];
    if (pool->empty()) pool->resize(NamesForAwaited(latest_signature_));
    latest_pool_ = pool;
  }
  if (!awaited && latest_pool_->size() == 1) latest_pool_->resize(NamesFor(latest_signature_));
  const size_t at = static_cast<size_t>(sequence_number) % latest_pool_->size();
  PooledName& pooled = (*latest_pool_)[at];
  if (pooled.name.empty())
    pooled.name = "#" + std::to_string(Fingerprint(latest_signature_)) + "." + std::to_string(at);
  return pooled;
}

// A forgotten signature gets a new pool later. That is safe, since none of its names is in flight.
void Naming::ForgetIdlePools() {
  const auto is_in_use = [](const PooledName& pooled) { return InFlight(pooled.latest) != nullptr; };
  for (auto it = pools_.begin(); it != pools_.end();) {
    const Pool& pool = it->second;
    it = std::any_of(pool.begin(), pool.end(), is_in_use) ? std::next(it) : pools_.erase(it);
  }
  latest_pool_ = nullptr;
}

// This rank has consumed no number since it announced its join.
void Naming::CatchUp(const SequenceNumbers& sequence_numbers) {
  for (const auto& [set, sequence_number] : sequence_numbers) next_sequence_number_[set] = sequence_number;
}

}  // namespace farandole
