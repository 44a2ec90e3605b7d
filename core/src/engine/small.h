// Small operations, whose path is cells: every member puts its input where all see it and folds everything by itself
// (transport/shm/cells.h). That moves n times the bytes that a reduce-scatter would, but needs one wait, which is all
// that counts for small payloads.
//
// Thread rule: PutSmall and FoldSmall under the lock of Operations, or, where the admission is large, between the
// negotiation's Submit or TakeReady and its Release.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "algorithms/choose_path.h"
#include "engine/operation.h"
#include "reduce/reduce.h"
#include "transport/shm/cells.h"

namespace farandole {

// The member that folds.
struct CellReader {
  int member = 0;
  uint64_t stamp = 0;        // of the use
  int pauses = 0;            // of a thread in a blocking call; 0: it does not wait for the other's half
  bool half_folded = false;  // its own, before
  bool overwrites = true;    // writes results over what it has read, or takes its lines, where that pays here
};

// Of more bytes than this, each of two members folds one half for both: its half of the result goes over what the other
// has put, and the other takes it from there. So half as many lines cross, and a line comes back with the result for
// which it would otherwise come back for the next put. Microseconds for two cores of an AMD EPYC (Zen 4), each folding
// everything | one half, in two states of the virtual machine: in the second one all lines took longer to cross, as
// between cores that are far apart.
//
//             first           second
//    2 KB   0.22 | 0.22     0.8 | 0.8
//    8 KB   1.15 | 0.49     3.8 | 1.4
//   16 KB   1.80 | 1.00     6.5 | 2.9
//   32 KB   2.85 | 1.88     7.7 | 5.4
//   64 KB   4.20 | 3.30    11.8 | 5.8
//
// Calls of 4 KB took 0.44 | 0.47. With 1.5 us of Python between calls near cores gain little, 16 KB 2.9 | 3.1 and 64 KB
// 5.6 | 5.4, and far ones up to a fifth: in two runs 16 KB 4.7 | 4.6 and 5.0 | 4.1, 64 KB 7.4 | 7.6 and 8.6 | 7.0. To
// copy with prefetching for writing took longer. All that was before calls put halves, which takes another 12 to 28 %
// less (docs/design/data-plane.md).
inline constexpr size_t kMostFoldedWhole = 4 << 10;

// The fold of one tensor of the payload, with its loop and operands chosen. A caller that waits for the others chooses
// them meanwhile: that takes longer than to fold a few bytes.
class TensorFold {
 public:
  // offset: of the tensor in the payload. REQUIRES: as FoldCells, but for AllHavePut; the tensor has an output.
  TensorFold(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor& tensor, size_t offset,
             const CellReader* reader);
  TensorFold(const TensorFold&) = delete;  // call_ points at its own members
  void Run() const;                        // REQUIRES: AllHavePut

 private:
  // Every instruction set folds this many bytes in whole steps. A shorter tensor in the cell's line is followed by
  // zeros or the next tensor, so the fold may read past its end and write to memory aside. A fold of the exact length
  // would take 21 ns instead of 13.
  static constexpr size_t kStepBytes = 32;

  const CellTensor& tensor_;
  const void* inputs_[kMostCellMembers];
  alignas(kStepBytes) std::byte own_[kStepBytes];
  alignas(kStepBytes) std::byte result_[kStepBytes];
  FoldCall call_;
  FoldFunction fold_;
  const std::byte* to_ask_for_ = nullptr;  // the other's payload, whose lines Run prefetches
};

// Folds all members' tensors in order R into the outputs. A reader takes its own inputs from where they are instead of
// what it has put: lines that others have read may have gone there (64 KB take 2.1 us, not 5.1). Of two members a
// reader may overwrite what the other has put. Of more, one on each core folds for all there (CoreSharers).
// REQUIRES: at least two members; AllHavePut; the reader's inputs are as they were put, and only a member that drops
// the result has none; an IEEE environment as FloatingPointScope makes it. Returns false when the other member, which
// has put only half, has still to fold its own; the reader has folded its half then.
bool FoldCells(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* tensors, size_t tensor_count,
               const CellReader* reader = nullptr);

// REQUIRES: the admission has cells.
void PutSmall(Operation* operation, bool wants_bell);
void FoldSmall(Operation* operation);  // REQUIRES: all have put

// A blocking allreduce of one small tensor that the ranks know, by its name or as one of the unnamed. The caller puts
// its data, polls until the others have arrived, and folds. No other thread needs to know of the call, so it lives on
// the caller's stack and allocates nothing: making and sharing an Operation costs nearly as much as all the rest (2
// ranks, 4 bytes: 0.27 us of 0.63).
//
// If the others do not arrive at once, the call is entered in Operations. A thread that has to do more with it than
// complete it (the driver, when ranks die, ids retire or the time is up, or the caller, before it sleeps) makes it an
// Operation, which then goes its usual way.
//
// Thread rule: under the lock of Operations, but for over(); the admission, which only NoteHalfFolded changes after
// Enter; and all that puts, and Take, where the admission is large, see Negotiation::Release.
class SmallCall final : public NamedOperation {
 public:
  // `asked`, and the name for the negotiation, live as long as the call. The user has named it if there is no number.
  // REQUIRES: CanBe(asked)
  SmallCall(const RequestView& asked, std::string_view name, int64_t sequence_number = -1);

  // True when the request has the form of one. It is one if its name is also known with the same signature.
  static bool CanBe(const RequestView& asked) {
    if (asked.kind != OpKind::kAllreduce || asked.tensors.size() != 1) return false;
    if (asked.prescale != 1.0) return false;  // its scaled input needs memory, see PrescaleInputs
    const TensorView& tensor = asked.tensors[0];
    const bool is_hosts = tensor.device == static_cast<int32_t>(DeviceKind::kHost);
    return is_hosts && tensor.input != nullptr && tensor.output != nullptr && asked.done == nullptr;
  }

  // As the negotiation sees it.
  int set() const override { return asked_.process_set; }
  std::string_view name() const override { return name_; }
  int64_t sequence_number() const override { return sequence_number_; }
  std::string_view site() const override { return asked_.site; }
  bool Means(const Signature& signature) const override { return farandole::Means(asked_, signature); }

  // True for one of two members that is large enough to be folded by halves, see CellBuffer::PutHalf.
  bool CanPutHalf() const;
  void Put();
  void PutHalf() { admission.cells->PutHalf((*members)->position, tensor_, admission.stamp()); }
  template <typename Stop>
  bool PutRest(const Stop& stop) {
    return admission.cells->PutRest((*members)->position, tensor_, admission.stamp(), stop);
  }
  // Makes the fold of Take, while the others' data are on their way. REQUIRES: Put, and the call is not large.
  void PrepareFold();
  // Folds, and ends the call. Returns false when the other's half is still to come; NoteHalfFolded has to follow.
  // REQUIRES: all have put, and the negotiation has been told that the result is taken. pauses: of the CellReader.
  // at_once: in the first looks, so that the record of its end needs no clock.
  bool Take(int pauses, bool at_once = false);
  void NoteHalfFolded() {
    admission.half_folded = true;
    if (became_) became_->admission.half_folded = true;
  }
  FlightFacts Facts() const;
  std::string_view given_name() const { return asked_.name; }
  std::string Shape() const { return ToString({asked_.tensors[0].shape.begin(), asked_.tensors[0].shape.end()}); }
  // Ends the call, which goes on as the returned operation.
  OperationPtr Become();

  // True once no other thread uses the call.
  bool over() const { return over_.load(std::memory_order_acquire); }
  const OperationPtr& became() const { return became_; }  // null: the result is complete. REQUIRES: over()

  FlightRecord* record = nullptr;  // null: operations are not recorded
  Admission admission;             // its set is left out: counting references costs more than all else here
  const ProcessSetPtr* members = nullptr;
  size_t size_bytes() const { return tensor_.size_bytes(); }

 private:
  const RequestView& asked_;
  const std::string_view name_;
  const int64_t sequence_number_;
  const CellTensor tensor_;
  std::optional<TensorFold> fold_;  // from PrepareFold on
  OperationPtr became_;
  std::atomic<bool> over_{false};
};

}  // namespace farandole
