// A schedule says who sends which block to whom, and what is folded, for one chunk of one collective. It is pure
// data: made by pure functions of (participants, me), tested without threads or sockets, cached, and repeated over
// the chunks by the one loop in runner.h. Values; a schedule that does not change any more may be read by any thread.
//
// A chunk is cut into `block_count` blocks; chunks.h says where. Participants are numbered 0 .. participants-1
// (shared-memory groups by lowest rank, or ranks); the caller maps them to links.
//
//   data     [ block 0 | block 1 | ... ]      the caller's memory, reduced or filled in place
//   scratch  [ slot 0 ][ slot 1 ] ...         received partials, one block each, owned by the loop
//
// Phases are the software pipeline over the chunks: at tick k the loop takes phase 0 of chunk k, phase 1 of chunk k -
// lag, phase 2 of chunk k - 2 lag ... (chunks.h), so that a link carries other chunks while this chunk waits for a fold
// or a far rank.
//
//   tick           0           1           2           3           4          lag = 2, three chunks, three phases
//   chunk 0     phase 0                 phase 1                 phase 2
//   chunk 1                 phase 0                 phase 1                ...
//   chunk 2                             phase 0                 phase 1    ...
//
// What every schedule keeps, and schedule_test.cc checks:
// - Sends to a peer stand in the order of that peer's receives from us, with the same block and phase each.
// - A step stands behind all steps in its `after`, and its phase is not lower than theirs.
// - `after` covers, directly or through others, every earlier step that touches the same block or slot, unless both
//   only read.
// - A slot is received and folded in the same phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farandole {

enum class StepKind : uint8_t {
  kSend,         // data block `block` -> participant `peer`
  kRecvData,     // participant `peer` -> data block `block`
  kRecvScratch,  // participant `peer` -> scratch slot `slot`, as long as block `block`
  kFold,         // data block `block` = R(operands): scratch slots, or kOwnData for the data block itself, in order
};

inline constexpr int kOwnData = -1;

struct Step {
  StepKind kind = StepKind::kSend;
  int peer = -1;
  int block = 0;
  int slot = -1;
  int phase = 0;
  bool scale = false;         // kFold only: apply the operation's scale to this fold (the last one of the block)
  std::vector<int> operands;  // kFold only
  std::vector<int> after;     // indices of earlier steps that must be complete
};

struct Schedule {
  int block_count = 1;
  int phase_count = 1;  // the same for all participants, since it decides the lag
  int slot_count = 0;   // grows with the steps
  std::vector<Step> steps;

  // Append a step and return its index.
  int Send(int phase, int block, int peer, std::vector<int> after);
  int RecvData(int phase, int block, int peer, std::vector<int> after);
  int RecvScratch(int phase, int block, int peer, int slot, std::vector<int> after);
  int Fold(int phase, int block, std::vector<int> operands, bool scale, std::vector<int> after);

 private:
  int Append(Step step);
};

// A half-open range of elements or bytes.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// No two participants fold into one cache line.
inline constexpr int64_t kBorderBytes = 64;

// Elements of `block` when `element_count` elements are cut into `block_count` blocks of nearly equal size. Borders
// fall on multiples of kBorderBytes; blocks may be empty. REQUIRES: element_bytes is 1, 2, 4 or 8.
Range BlockRange(int64_t element_count, size_t element_bytes, int block, int block_count);

}  // namespace farandole
