#include "algorithms/schedule.h"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

Step Transfer(StepKind kind, int phase, int block, int peer, std::vector<int> after) {
  Step step;
  step.kind = kind;
  step.phase = phase;
  step.block = block;
  step.peer = peer;
  step.after = std::move(after);
  return step;
}

}  // namespace

int Schedule::Append(Step step) {
  slot_count = std::max(slot_count, step.slot + 1);
  steps.push_back(std::move(step));
  return static_cast<int>(steps.size()) - 1;
}

int Schedule::Send(int phase, int block, int peer, std::vector<int> after) {
  return Append(Transfer(StepKind::kSend, phase, block, peer, std::move(after)));
}

int Schedule::RecvData(int phase, int block, int peer, std::vector<int> after) {
  return Append(Transfer(StepKind::kRecvData, phase, block, peer, std::move(after)));
}

int Schedule::RecvScratch(int phase, int block, int peer, int slot, std::vector<int> after) {
  Step step = Transfer(StepKind::kRecvScratch, phase, block, peer, std::move(after));
  step.slot = slot;
  return Append(std::move(step));
}

int Schedule::Fold(int phase, int block, std::vector<int> operands, bool scale, std::vector<int> after) {
  Step step;
  step.kind = StepKind::kFold;
  step.phase = phase;
  step.block = block;
  step.operands = std::move(operands);
  step.scale = scale;
  step.after = std::move(after);
  return Append(std::move(step));
}

// Deals whole granules of one cache line to the blocks. The last granule may be cut short by the end of the elements.
Range BlockRange(int64_t element_count, size_t element_bytes, int block, int block_count) {
  const int64_t granule = kBorderBytes / static_cast<int64_t>(element_bytes);
  const int64_t granules = (element_count + granule - 1) / granule;
  const auto border = [&](int64_t i) { return std::min(element_count, granules * i / block_count * granule); };
  return {border(block), border(block + 1)};
}

}  // namespace farandole
