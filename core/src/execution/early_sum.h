// A sum between nodes that begins at submission: the data of this node, and their exchange with the other nodes by a
// schedule in which every leader sends to every other (ExchangeAll). EarlySums (early_sums.h) drives it.
//
//   this node has one member    leader   inputs ----------------------> partial
//   it has several              member   inputs -> its buffer slot
//                               leader   all slots, reduced ----------> partial
//   in both cases               leader   partials of all nodes, exchanged and reduced -> result
//   it has several              leader   result -> slots               members copy it from there
//
// Gives the same bits as the two-level path and the flat path: first the members of a node are reduced in the fixed
// tree order, then the nodes.
//
// An object is used for one sum after another of the same process set, so that nothing is allocated each time.
//
// Only the holder of the ProgressLock uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/schedule.h"
#include "collectives/runner.h"
#include "operation/operation.h"
#include "transport/shm/slots.h"

namespace farandole {

class EarlySum {
 public:
  EarlySum(ProcessSetPtr set, Transport* transport);

  // REQUIRES: the sum before is over; the operation has arrived, and its admission is early.
  void Begin(OperationPtr operation);

  // REQUIRES: the sum is over.
  OperationPtr TakeOperation() { return std::move(operation_); }
  const Admission& admission() const { return operation_->admission; }
  const ProcessSet& set() const { return *set_; }
  MessageTag Tag() const;
  bool leads() const { return set().member() == 0; }
  bool collects() const { return admission().node_slots.has_value(); }  // this node has several members

  // ---- inside the node. REQUIRES: collects()
  void WriteInput() const;  // into this rank's slot
  bool HasAllInputs() const { return slots().AllHaveWritten(admission().generation()); }
  bool HasResult() const { return slots().HasResult(admission().generation()); }
  void GiveUp() const { slots().AnnounceResult(admission().generation(), /*is_given_up=*/true); }
  bool HasGivenUp() const { return slots().HasGivenUp(admission().generation()); }

  // ---- between nodes. REQUIRES: leads()
  // Makes the node's partial and begins the exchange. REQUIRES: HasAllInputs() if it collects.
  Status StartExchange();
  bool has_started() const { return has_started_; }
  // A node whose data are awaited, by its number in the layout of the set.
  bool WaitsFor(int node) const { return has_started_ && runner_->WaitsToRecv(node); }

  // Goes on with the exchange, or takes the result from the leader. *done: the outputs are complete, the data are sent,
  // and the members of this node have the result.
  Status Advance(bool* done);
  // The transport has cancelled the exchange.
  void Drop() {
    if (runner_) runner_->Drop();
  }

 private:
  const SlotBuffer& slots() const { return *admission().node_slots; }
  bool ScalesFirst() const;
  void ReduceInputs();
  void CopyOut(const std::byte* from) const;

  const ProcessSetPtr set_;
  const Schedule schedule_;
  std::optional<Runner> runner_;  // of a leader

  // Of the current sum.
  OperationPtr operation_;
  Reduction reduction_;
  std::vector<SlotTensor> tensors_;
  std::vector<const void*> operands_;
  size_t payload_bytes_ = 0;
  bool has_started_ = false;
  std::vector<std::byte> own_;   // the partial, where it is not the input as it is
  std::byte* result_ = nullptr;  // null: it is dropped
};

}  // namespace farandole
