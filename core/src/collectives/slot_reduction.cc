#include "collectives/slot_reduction.h"

#include <algorithm>
#include <cstring>

#include "common/cache.h"
#include "common/clock.h"
#include "common/failpoint.h"

namespace farandole {
namespace {

// The peer's payload is prefetched from this size on: a core looks ahead over the instructions of only a few lines, and
// would wait for each line (docs/benchmarks/shared-memory.md#prefetching).
constexpr size_t kLeastPrefetchedBytes = 1 << 10;

// A blocking call waits for the peer's half for this many times its usual pauses: both ranks have arrived, so the half
// comes next unless the peer has lost its core. Other operations do not wait, since the peer may take them much later
// (docs/benchmarks/shared-memory.md#halves).
constexpr int kHalfPauses = 4;

// A blocking call pauses this often for a peer that has written only half, and then gives up its core.
constexpr int kDependingPauses = 1000;

}  // namespace

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
  } else if (members == 2 && reads_own && size_bytes >= kLeastPrefetchedBytes) {
    prefetched_ = static_cast<const std::byte*>(inputs_[1 - reader->member]);
  }
  fold_ = ChooseFold(tensor.dtype, reduce, call_.element_count * SizeOf(tensor.dtype));
}

void TensorFold::Run() const {
  if (prefetched_ != nullptr) {
    const size_t end_byte = std::min(tensor_.size_bytes(), kMostFoldedWhole);
    for (size_t at = 0; at < end_byte; at += kLineBytes) AskToRead(prefetched_ + at);
  }
  fold_(call_);
  if (call_.output == result_) std::memcpy(tensor_.output, result_, tensor_.size_bytes());
}

namespace {

// One member's reduction of one operation.
class CellFold {
 public:
  CellFold(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* tensors, size_t tensor_count,
           const CellReader* reader)
      : cells_(cells), reduce_(reduce), scale_(scale), tensors_(tensors), count_(tensor_count), reader_(reader) {}

  // Returns false if the peer still has to reduce its half, and only the peer can.
  bool Run() {
    if (FoldsHalf()) return FoldByHalves();
    FoldAll();
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

  // A rank that has joined has no memory, and reduces nothing.
  bool FoldsHalf() const {
    if (cells_.member_count() != 2 || reader_ == nullptr) return false;
    for (size_t i = 0; i < count_; ++i) {
      if (tensors_[i].input == nullptr || tensors_[i].output == nullptr) return false;
    }
    return PayloadBytes() > kMostFoldedWhole;
  }

  // If the peer has written everything, this member can reduce both halves itself, so it waits only while that is
  // cheaper, and not at all for a peer that sleeps. fold_ticks: how long its own half took.
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

  // Reduces one member's half. The peer's half is reduced by both, each for itself, if it did not come in time.
  void FoldHalf(int member) const {
    size_t offset = 0;
    for (size_t i = 0; i < count_; offset += tensors_[i++].size_bytes()) {
      const CellTensor& tensor = tensors_[i];
      const CellBuffer::Half half = CellBuffer::HalfOf(tensor, member);
      const size_t at = half.first * SizeOf(tensor.dtype);
      const void* inputs[] = {cells_.payload(0) + offset + at, cells_.payload(1) + offset + at};
      inputs[reader_->member] = static_cast<const std::byte*>(tensor.input) + at;
      FoldTwice(tensor.dtype, reduce_, inputs[0], inputs[1], half.count, scale_,
                static_cast<std::byte*>(tensor.output) + at,
                cells_.payload_to_write(1 - reader_->member) + offset + at);
    }
  }

  void CopyHalf() const {
    size_t offset = 0;
    for (size_t i = 0; i < count_; offset += tensors_[i++].size_bytes()) {
      const CellTensor& tensor = tensors_[i];
      const CellBuffer::Half half = CellBuffer::HalfOf(tensor, 1 - reader_->member);
      const size_t element_bytes = SizeOf(tensor.dtype), at = half.first * element_bytes;
      CopyReadingAhead(static_cast<std::byte*>(tensor.output) + at, cells_.payload(reader_->member) + offset + at,
                       half.count * element_bytes, kCoreReadAheadBytes);
    }
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
