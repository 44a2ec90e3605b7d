// Generates names for unnamed operations.
//
// Ranks pair their unnamed operations by sequence number, which counts per process set; changes of process sets count
// in set 0. Each signature has a pool of names, and an operation takes the one at its sequence number modulo
// the size of the pool. So a program that repeats its calls, in any mix, reuses known names. If the name is still in
// flight, the operation waits for it: ranks whose former operation is done already would not pick another name.
//
// The pool of small allreduces has only one name, so that its memory stays in the caches, until a caller submits one
// without waiting for it. If the callers differ between ranks, so do their names; then rank 0 pairs the operations by
// sequence number and tells all ranks to use the full pool.
//
// Thread rule: the lock of Operations, which the caller holds from a reservation until it commits it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "controller/signature.h"
#include "operation/operation.h"

namespace farandole {

class Naming {
 public:
  class Reservation;

  // Names the operation, and updates its `awaited`.
  Reservation Name(Operation* operation);
  // Reserves a name for a borrowed operation. The result is empty if that name is in flight, and for the first
  // operation of a set, whose name no rank knows yet.
  Reservation Reserve(const RequestView& request);

  // The sequence number of the set's next unnamed operation.
  int64_t NextNumber(int set) const;
  // Consumes it, for a call that is refused on all ranks.
  void TakeNumber(int set) { ++next_sequence_number_[set]; }
  // Gives this signature its full pool of names.
  void UseFullPool(const Signature& signature);

  const SequenceNumbers& sequence_numbers() const { return next_sequence_number_; }
  // After a join: goes on with the highest numbers of any rank.
  void CatchUp(const SequenceNumbers& sequence_numbers);
  void Forget(int set) { next_sequence_number_.erase(set); }

 private:
  struct PooledName {
    std::string name;
    std::weak_ptr<Operation> latest;
  };
  using Pool = std::vector<PooledName>;  // the names of one signature
  template <typename AnyRequest>
  PooledName& FindName(const AnyRequest& request, int64_t sequence_number, bool awaited);
  void ForgetIdlePools();

  std::unordered_map<uint64_t, Pool> pools_;  // by the signature's fingerprint
  Signature latest_signature_;
  Pool* latest_pool_ = nullptr;  // of latest_signature_
  SequenceNumbers next_sequence_number_;
};

// The next name and sequence number of a set. Only Commit consumes them: a call that is refused on this rank alone has
// no number, and the next one gets the same.
class Naming::Reservation {
 public:
  Reservation() = default;  // empty
  explicit operator bool() const { return next_ != nullptr; }

  // Returns the operation in flight with this name, or null. The new one must not begin before that is done.
  OperationPtr before() const;
  // REQUIRES, for all below: not empty; for name(): it came from Reserve.
  std::string_view name() const { return pooled_->name; }
  int64_t sequence_number() const { return *next_; }
  void Commit(const OperationPtr& operation) {  // null: it is done already
    if (pooled_ != nullptr) pooled_->latest = operation;
    ++*next_;
  }

 private:
  friend class Naming;
  Reservation(int64_t* next, PooledName* pooled) : next_(next), pooled_(pooled) {}

  int64_t* next_ = nullptr;
  PooledName* pooled_ = nullptr;  // null: the name is in no pool
};

}  // namespace farandole
