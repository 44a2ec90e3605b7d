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
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/signature.h"
#include "operation/operation.h"

namespace farandole {

class Naming {
 public:
  // Names the operation. Returns the operation in flight with the same name, or null; the new one must not begin before
  // that is done. Updates operation->awaited.
  OperationPtr Name(const OperationPtr& operation);
  // Consumes and returns the sequence number of the set's next unnamed operation.
  int64_t TakeNumber(int set);
  // Gives this signature its full pool of names.
  void UseFullPool(const Signature& signature);

  class Reservation;  // names a borrowed operation

  SequenceNumbers sequence_numbers() const;
  // After a join: advances to the highest numbers of any rank.
  void CatchUp(const SequenceNumbers& sequence_numbers);
  void Forget(int set);

 private:
  struct PooledName {
    std::string name;
    std::weak_ptr<Operation> latest;
  };
  using Pool = std::vector<PooledName>;  // the names of one signature
  template <typename AnyRequest>
  PooledName& FindName(const AnyRequest& request, int64_t sequence_number, bool awaited);
  void ForgetIdlePools();

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Pool> pools_;  // by the signature's fingerprint
  Signature latest_signature_;
  Pool* latest_pool_ = nullptr;  // of latest_signature_
  SequenceNumbers next_sequence_number_;
};

// Holds the lock of Naming, and with it the next name and sequence number for a request. Only Commit consumes them: if
// a borrowed operation cannot be entered, the operation that replaces it gets the same ones.
class Naming::Reservation {
 public:
  Reservation(Naming* naming, const RequestView& request);

  // False if the name is in flight, and for the first operation of a set, whose name no rank knows yet.
  bool is_free() const { return pooled_ != nullptr; }
  // REQUIRES: is_free()
  const std::string& name() const { return pooled_->name; }
  int64_t sequence_number() const { return *next_; }
  void Commit(const OperationPtr& operation) {  // null: it is done already
    pooled_->latest = operation;
    ++*next_;
  }

 private:
  const std::lock_guard<std::mutex> lock_;
  int64_t* next_ = nullptr;
  PooledName* pooled_ = nullptr;
};

}  // namespace farandole
