// A blocking allreduce of one small tensor whose name the ranks know. The caller puts its data, looks until the others
// have come, and folds; nobody else needs to know of it, so it lives on the caller's stack and takes no memory of its
// own: making and sharing an Operation costs nearly as much as all the rest (2 ranks, 4 bytes: 0.27 us of 0.63).
//
// One for which the others do not come at once is entered in the table. Whoever has more to say about it than that it
// is ready (the driver, when ranks die, ids retire or the time is up, or the caller, before it sleeps) makes it an
// Operation, which then goes its usual way.
//
// Thread rule: under the table's mutex, but for over(), and the plan, which does not change after Enter, and Put and
// Take where the plan is large, see Agreement::Release.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "common/flat.h"
#include "controller/agreement.h"
#include "engine/operation.h"

namespace farandole {

// What a caller asks for; it points at what is the caller's. The tensor is the host's.
struct SmallRequest {
  const std::string& name;
  const std::string& site;
  ReduceOp reduce = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int process_set = 0;
  FlatSegment tensor;
  const int64_t* shape = nullptr;
  size_t dimension_count = 0;
};

class SmallCall final : public Proposal {
 public:
  explicit SmallCall(const SmallRequest& asked) : asked_(asked) {}

  // As the agreement sees it.
  int set() const override { return asked_.process_set; }
  const std::string& name() const override { return asked_.name; }
  int64_t turn() const override { return -1; }
  const std::string& site() const override { return asked_.site; }
  std::vector<int64_t> Extents() const override { return {}; }
  bool Means(const Signature& signature) const override;
  Description Describe() const override { return Operation(AsRequest()).Describe(); }

  void Put();
  // Folds, and is over. REQUIRES: all have put, and the agreement has been told that the result is taken.
  void Take();
  // Is over as a call, and goes on as what this returns.
  OperationPtr Become();

  // From here on the call is its caller's again.
  bool over() const { return over_.load(std::memory_order_acquire); }
  const OperationPtr& became() const { return became_; }  // null: the result is there. REQUIRES: over()

  Agreement::Plan plan;  // its set is left out: counting references costs more than all else here
  const ProcessSetPtr* members = nullptr;

 private:
  Request AsRequest() const;

  const SmallRequest& asked_;
  OperationPtr became_;
  std::atomic<bool> over_{false};
};

}  // namespace farandole
