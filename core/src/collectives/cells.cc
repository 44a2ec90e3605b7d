#include "collectives/cells.h"

#include <cstring>

#include "algorithms/choose_path.h"
#include "common/failpoint.h"

namespace farandole {
namespace {

// What every instruction set folds in whole steps. A payload within the line is followed by zeros or the next segment,
// so folding a little more than the segment, aside, spares the careful handling of odd ends: 13 ns instead of 21.
constexpr size_t kStepBytes = 32;

}  // namespace

void FoldCells(const CellBuffer& cells, ReduceOp reduce, Scale scale, const CellTensor* segments, size_t segment_count,
               int reader) {
  FRD_FAILPOINT("cells.fold");
  const void* inputs[kMostCellMembers];
  size_t offset = 0;
  for (size_t i = 0; i < segment_count; ++i) {
    const CellTensor& segment = segments[i];
    const size_t size_bytes = segment.size_bytes();
    for (int m = 0; m < cells.member_count(); ++m) inputs[m] = cells.payload(m) + offset;
    const bool reads_own = reader >= 0 && segment.input != nullptr;
    if (reads_own) inputs[reader] = segment.input;
    const auto fold = [&](size_t element_count, void* output) {
      Fold(segment.dtype, reduce, inputs, static_cast<size_t>(cells.member_count()), element_count, scale, output);
    };
    if (segment.output != nullptr && cells.payload_is_in_line() && size_bytes < kStepBytes &&
        offset + kStepBytes <= CellBuffer::kInLineBytes) {
      alignas(kStepBytes) std::byte own[kStepBytes] = {}, result[kStepBytes];
      if (reads_own) inputs[reader] = std::memcpy(own, segment.input, size_bytes);
      fold(kStepBytes / SizeOf(segment.dtype), result);
      std::memcpy(segment.output, result, size_bytes);
    } else if (segment.output != nullptr) {
      fold(segment.element_count, segment.output);
    }
    offset += size_bytes;
  }
}

}  // namespace farandole
