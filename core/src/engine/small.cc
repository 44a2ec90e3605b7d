#include "engine/small.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "common/cache.h"
#include "common/clock.h"
#include "common/failpoint.h"

namespace farandole {

namespace {

// The shape of a call is not checked before, and is right if its name is known with it.
template <typename AnyTensor>
CellTensor ToCellTensor(const AnyTensor& tensor) {
  return {tensor.input, tensor.output, tensor.dtype, UncheckedCount(tensor.shape)};
}

// Holds nearly always one tensor, which needs no allocation.
class CellTensors {
 public:
  explicit CellTensors(const Request& request) : count_(request.tensors.size()) {
    if (count_ > 1) many_.resize(count_);
    for (size_t i = 0; i < count_; ++i) {
      at(i) = ToCellTensor(request.tensors[i]);
    }
  }
  const CellTensor* data() const { return count_ > 1 ? many_.data() : &one_; }
  size_t count() const { return count_; }

 private:
  CellTensor& at(size_t i) { return count_ > 1 ? many_[i] : one_; }

  size_t count_;
  CellTensor one_;
  std::vector<CellTensor> many_;
};

// True when members look for the result of another one on their core, see CoreSharers. With 64 bytes four ranks on two
// far cores would lose a tenth by it, and from 1 KB on they gain.
bool MayKeepResult(const CellBuffer& cells, size_t payload_bytes) {
  constexpr size_t kLeastKeptBytes = 1 << 10;
  return cells.member_count() > 2 && payload_bytes >= kLeastKeptBytes;
}

}  // namespace

void PutSmall(Operation* operation, bool wants_bell) {
  const CellTensors tensors(operation->request);
  Admission& admission = operation->admission;
  admission.cells->Put(admission.set->position, tensors.data(), tensors.count(), admission.stamp(), wants_bell);
}

void FoldSmall(Operation* operation) {
  const FloatingPointScope scope;
  const CellTensors tensors(operation->request);
  const Reduction reduction = ReductionOf(operation->request, operation->admission.set->size());
  const Admission& admission = operation->admission;
  const CellReader reader{admission.set->position, admission.stamp(), /*pauses=*/0, admission.half_folded,
                          admission.overwrites};
  [[maybe_unused]] const bool ends =
      FoldCells(*admission.cells, reduction.reduce, reduction.scale, tensors.data(), tensors.count(), &reader);
  assert(ends);
}

// ---- a call

SmallCall::SmallCall(const RequestView& asked, std::string_view name, int64_t sequence_number)
    : asked_(asked), name_(name), sequence_number_(sequence_number), tensor_(ToCellTensor(asked.tensors[0])) {}

void SmallCall::Put() { admission.cells->Put((*members)->position, &tensor_, 1, admission.stamp()); }

void SmallCall::PrepareFold() {
  const ProcessSet& set = **members;
  if (MayKeepResult(*admission.cells, size_bytes())) return;  // FoldCells looks first whether another one has kept it
  const Reduction reduction = ReductionOf(asked_, set.size());
  const CellReader reader{set.position, admission.stamp(), /*pauses=*/0, /*half_folded=*/false, admission.overwrites};
  fold_.emplace(*admission.cells, reduction.reduce, reduction.scale, tensor_, /*offset=*/0, &reader);
}

// Sets `over_` last: the caller's thread may return then, and the call is on its stack.
bool SmallCall::Take(int pauses, bool at_once) {
  const FloatingPointScope scope;
  if (fold_) {
    FRD_FAILPOINT("cells.fold");
    fold_->Run();
  } else {
    const ProcessSet& set = **members;
    const Reduction reduction = ReductionOf(asked_, set.size());
    const CellReader reader{set.position, admission.stamp(), pauses, admission.half_folded, admission.overwrites};
    if (!FoldCells(*admission.cells, reduction.reduce, reduction.scale, &tensor_, 1, &reader)) return false;
  }
  if (record != nullptr) record->End(at_once ? record->submitted.load(std::memory_order_relaxed) : Ticks());
  over_.store(true, std::memory_order_release);
  return true;
}

FlightFacts SmallCall::Facts() const {
  return {asked_.kind, tensor_.dtype, asked_.reduce, asked_.process_set, 1, size_bytes()};
}

// The request is copied now, since the caller's view of it may be gone before the operation is.
OperationPtr SmallCall::Become() {
  OperationPtr operation = std::make_shared<Operation>(Request(asked_));
  if (sequence_number_ >= 0) operation->SetName(std::string(name_), sequence_number_);
  operation->admission = admission;
  operation->admission.set = *members;
  operation->record = record;
  became_ = operation;
  over_.store(true, std::memory_order_release);
  return operation;
}

namespace {

// From this size on, each of two members writes its result over the payload that it has read. The payload's lines are
// then modified in its cache, and the owner's next put takes them from there. Lines that were only read stay shared,
// and the owner has to have each invalidated before it writes. No member reads what is written: the owner reads its own
// input where that is. Prefetching for writing, without a write, changed nothing.
//
// It depends on the processor whether that pays. Two ranks, microseconds with overwriting | without: 2 KB 0.29 | 0.30
// and 4 KB 0.42 | 0.57 on an AMD EPYC (Zen 4), 0.91 | 0.64 and 1.53 | 1.13 on an Intel Xeon (Sapphire Rapids). So it is
// measured (Tuning).
constexpr size_t kLeastOverwrittenBytes = 1 << 10;

// A call waits for the other's half this much longer than for its arrival: both have come, so the half comes next
// unless the other one has lost its core. With a factor of 1, 17 of 100 waits ended too early, with 4 less than 1 of
// 1000. An operation does not wait, since the other rank may take it at any later time: each of 64 in flight with 16 KB
// took 4.8 us with such waits, and takes 3.5.
constexpr int kHalfPauses = 4;

// A call waits so many pauses (about 25 us) for the half of one that has put no more than that, and then lets others
// use the core.
constexpr int kDependingPauses = 1000;

}  // namespace

bool SmallCall::CanPutHalf() const { return (*members)->size() == 2 && size_bytes() > kMostFoldedWhole; }

TensorFold::TensorFold(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor& tensor, size_t offset,
                       const CellReader* reader)
    : tensor_(tensor) {
  const auto members = static_cast<size_t>(cells.member_count());
  for (size_t m = 0; m < members; ++m) inputs_[m] = cells.payload(static_cast<int>(m)) + offset;
  const bool reads_own = reader != nullptr && tensor.input != nullptr;
  if (reads_own) inputs_[reader->member] = tensor.input;
  const size_t size_bytes = tensor.size_bytes();
  call_ = {inputs_, members, tensor.element_count, scale, tensor.output};
  if (cells.payload_is_in_line() && size_bytes < kStepBytes && offset + kStepBytes <= CellBuffer::kInLineBytes) {
    std::memset(own_, 0, kStepBytes);
    if (reads_own) inputs_[reader->member] = std::memcpy(own_, tensor.input, size_bytes);
    call_.element_count = kStepBytes / SizeOf(tensor.dtype);
    call_.output = result_;
  } else if (members == 2 && reads_own && size_bytes >= kLeastOverwrittenBytes) {
    std::byte* const others = cells.payload_to_write(1 - reader->member) + offset;
    if (reader->overwrites) {
      call_.copy.at = others;
    } else {
      to_ask_for_ = others;
    }
  }
  fold_ = ChooseFold(tensor.dtype, reduce, call_.element_count * SizeOf(tensor.dtype));
}

// Where nothing is written over what is read, it prefetches first: the processor has room for the instructions of only
// some lines, each of which comes after 100 ns. Two ranks take 0.80 us for 4 KB, and 0.90 without prefetching (Intel
// Xeon with 2 MiB of second-level cache). The loop that stores twice prefetches by itself.
void TensorFold::Run() const {
  if (to_ask_for_ != nullptr) {
    const size_t end_byte = std::min(tensor_.size_bytes(), kMostFoldedWhole);
    for (size_t at = 0; at < end_byte; at += kLineBytes) AskToRead(to_ask_for_ + at);
  }
  fold_(call_);
  if (call_.output == result_) std::memcpy(tensor_.output, result_, tensor_.size_bytes());
}

namespace {

// The other members on the core of one of more than two, while it folds one use. They get a core by turns, so the first
// one that folds keeps its result for the others: the payloads then cross from the other cores once. It also takes the
// lines of the payloads that it has read. To write a line that another core has only read takes 6 ns between near cores
// and 25 between far ones, and 1.6 and 4 if that core has written it since (AMD EPYC, Zen 4). Four ranks on two cores,
// microseconds, each folds | and the last on a core takes lines | one on a core folds and takes lines:
//
//             near                   far
//    4 KB    4.4 |  4.1 |  3.9      8.4 |  7.3 |  6.6
//    8 KB    5.8 |  5.2 |  4.7     13.1 | 10.1 |  8.5
//   16 KB    8.4 |  7.4 |  6.3     22.1 | 16.4 | 12.5
//   32 KB   13.5 | 11.8 |  9.6     39.8 | 28.5 | 20.4
class CoreSharers {
 public:
  CoreSharers(const CellBuffer& cells, const CellReader& reader)
      : cells_(cells), reader_(reader), core_(cells.core(reader.member)) {}

  bool any() const {
    for (int m = 0; m < cells_.member_count(); ++m) {
      if (SharesCore(m)) return true;
    }
    return false;
  }

  // Returns the result that one of them has kept, else null.
  const std::byte* KeptResult() const {
    for (int m = 0; m < cells_.member_count(); ++m) {
      if (SharesCore(m) && cells_.HasStampedFold(m, reader_.stamp)) return cells_.kept_result(m);
    }
    return nullptr;
  }

  // Where members are on more than two cores, nobody takes lines: each line would go from core to core.
  void TakeLines(size_t payload_bytes) const {
    if (payload_bytes < kLeastTakenBytes) return;
    int there = -1;
    for (int m = 0; m < cells_.member_count(); ++m) {
      const int core = cells_.core(m);
      if (core == core_) continue;
      if (there >= 0 && core != there) return;
      there = core;
    }
    for (int m = 0; m < cells_.member_count(); ++m) {
      if (cells_.core(m) != core_) TakeLinesUnchanged(cells_.payload_to_write(m), payload_bytes);
    }
  }

 private:
  static constexpr size_t kLeastTakenBytes = 2 << 10;  // for less it does not pay

  bool SharesCore(int member) const { return member != reader_.member && cells_.core(member) == core_; }

  const CellBuffer& cells_;
  const CellReader& reader_;
  const int core_;
};

// One member's fold of one use.
class CellFold {
 public:
  CellFold(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* tensors, size_t tensor_count,
           const CellReader* reader)
      : cells_(cells), reduce_(reduce), scale_(scale), tensors_(tensors), count_(tensor_count), reader_(reader) {}

  // Returns false when the other has still to fold its half, and only it can.
  bool Run() {
    if (FoldsHalf()) return FoldByHalves();
    if (reader_ != nullptr && MayKeepResult(cells_, PayloadBytes())) {
      FoldForCore();
    } else {
      FoldAll();
    }
    return true;
  }

 private:
  bool FoldByHalves() {
    const uint64_t began = Ticks();
    const int other = 1 - reader_->member;
    if (!reader_->half_folded) {
      FoldHalf(reader_->member);
      cells_.StampFold(reader_->member, reader_->stamp);
    }
    if (OtherFoldsHalf(Ticks() - began)) {
      CopyHalf();
    } else if (cells_.HasPutAll(other, reader_->stamp)) {
      FoldHalf(other);
    } else {
      return false;
    }
    return true;
  }

  size_t PayloadBytes() const {
    size_t payload_bytes = 0;
    for (size_t i = 0; i < count_; ++i) payload_bytes += tensors_[i].size_bytes();
    return payload_bytes;
  }

  // A member without memory, which has joined, folds nothing.
  bool FoldsHalf() const {
    if (cells_.member_count() != 2 || reader_ == nullptr) return false;
    for (size_t i = 0; i < count_; ++i) {
      if (tensors_[i].input == nullptr || tensors_[i].output == nullptr) return false;
    }
    return PayloadBytes() > kMostFoldedWhole;
  }

  // Where the other member has put everything, this one does not depend on it: it waits while that is cheaper than to
  // fold the other half, too, and not at all for one that sleeps. `fold_ticks`: how long its own half took.
  bool OtherFoldsHalf(uint64_t fold_ticks) const {
    const int other = 1 - reader_->member;
    const bool waits = reader_->pauses > 0 && !cells_.WantsBell(other);
    const int least_pauses = kHalfPauses * reader_->pauses;
    const uint64_t begin = Ticks();
    for (int pauses = 0; !cells_.HasStampedFold(other, reader_->stamp); ++pauses) {
      const bool enough = !waits || (pauses >= least_pauses && Ticks() - begin > fold_ticks);
      if (enough && (pauses >= kDependingPauses || cells_.HasPutAll(other, reader_->stamp))) return false;
      CpuPause();
    }
    return true;
  }

  // Folds the half of this member; or that of the other, which then keeps its result to itself.
  void FoldHalf(int member) const {
    const bool reads_ahead = ReadsAhead();
    size_t offset = 0;
    for (size_t i = 0; i < count_; offset += tensors_[i++].size_bytes()) {
      const CellTensor& tensor = tensors_[i];
      const CellBuffer::Half half = CellBuffer::HalfOf(tensor, member);
      const size_t at = half.first * SizeOf(tensor.dtype);
      const void* inputs[] = {cells_.payload(0) + offset + at, cells_.payload(1) + offset + at};
      inputs[reader_->member] = static_cast<const std::byte*>(tensor.input) + at;
      FoldTwice(tensor.dtype, reduce_, inputs[0], inputs[1], half.count, scale_,
                static_cast<std::byte*>(tensor.output) + at,
                {cells_.payload_to_write(1 - reader_->member) + offset + at, reads_ahead});
    }
  }

  void CopyHalf() const {
    const bool reads_ahead = ReadsAhead();
    size_t offset = 0;
    for (size_t i = 0; i < count_; offset += tensors_[i++].size_bytes()) {
      const CellTensor& tensor = tensors_[i];
      const CellBuffer::Half half = CellBuffer::HalfOf(tensor, 1 - reader_->member);
      const size_t element_bytes = SizeOf(tensor.dtype), at = half.first * element_bytes;
      std::byte* const to = static_cast<std::byte*>(tensor.output) + at;
      const std::byte* const from = cells_.payload(reader_->member) + offset + at;
      if (reads_ahead) {
        CopyReadingAhead(to, from, half.count * element_bytes);
      } else {
        std::memcpy(to, from, half.count * element_bytes);
      }
    }
  }

  // True for large payloads where a line that is read comes over from the core that has written it, so that it need not
  // be prefetched for writing: 64 KB take 5.1 us instead of 6.2, 256 KB 15.8 instead of 16.6, and up to 16 KB nothing
  // is gained (Intel Xeon with 2 MiB of second-level cache). There it does not pay either to overwrite what was read.
  bool ReadsAhead() const {
    constexpr size_t kLeastBytes = 32 << 10;
    return !reader_->overwrites && PayloadBytes() >= kLeastBytes;
  }

  // By lines, since a call for each 2 KB took 2 to 4 % longer.
  static void CopyReadingAhead(std::byte* to, const std::byte* from, size_t size_bytes) {
    for (size_t at = 0; at < kCoreReadAheadBytes && at < size_bytes; at += kLineBytes) AskToRead(from + at);
    size_t at = 0;
    for (; at + kLineBytes <= size_bytes; at += kLineBytes) {
      if (at + kCoreReadAheadBytes < size_bytes) AskToRead(from + at + kCoreReadAheadBytes);
      std::memcpy(to + at, from + at, kLineBytes);
    }
    std::memcpy(to + at, from + at, size_bytes - at);
  }

  void FoldForCore() const {
    const CoreSharers others(cells_, *reader_);
    if (const std::byte* const kept = others.KeptResult()) return CopyFrom(kept);
    FoldAll();
    if (others.any()) KeepResult();
    if (reader_->overwrites) others.TakeLines(PayloadBytes());
  }

  void CopyFrom(const std::byte* result) const {
    for (size_t i = 0; i < count_; result += tensors_[i++].size_bytes()) {
      if (tensors_[i].output != nullptr) std::memcpy(tensors_[i].output, result, tensors_[i].size_bytes());
    }
  }

  void KeepResult() const {
    std::byte* to = cells_.kept_result(reader_->member);
    for (size_t i = 0; i < count_; to += tensors_[i++].size_bytes()) {
      if (tensors_[i].output == nullptr) return;
      std::memcpy(to, tensors_[i].output, tensors_[i].size_bytes());
    }
    cells_.StampFold(reader_->member, reader_->stamp);
  }

  void FoldAll() const {
    size_t offset = 0;
    for (size_t i = 0; i < count_; offset += tensors_[i++].size_bytes()) {
      if (tensors_[i].output != nullptr) TensorFold(cells_, reduce_, scale_, tensors_[i], offset, reader_).Run();
    }
  }

  const CellBuffer& cells_;
  const ReduceOp reduce_;
  const Scale scale_;
  const CellTensor* const tensors_;
  const size_t count_;
  const CellReader* const reader_;
};

}  // namespace

bool FoldCells(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* tensors, size_t tensor_count,
               const CellReader* reader) {
  FRD_FAILPOINT("cells.fold");
  return CellFold(cells, reduce, scale, tensors, tensor_count, reader).Run();
}

}  // namespace farandole
