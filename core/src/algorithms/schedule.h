// A schedule says who sends which block to whom, and what is folded, for one chunk of one collective. It is pure data: made by
// pure functions of (algorithm, participants, me), tested without threads or sockets, cached, and repeated over the chunks by
// the one loop in run.h.
//
// A chunk is cut into `block_count` blocks; Bounds() says where. Participants are numbered 0 .. participant_count-1 (arena groups by lowest
// rank, or ranks); the caller maps them to links.
//
//   data     [ block 0 | block 1 | ... ]      the caller's memory, reduced or filled in place
//   scratch  [ slot 0 ][ slot 1 ] ...         received partials, one block each, owned by the loop
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farandole {

enum class StepKind : uint8_t {
  kSend,         // data block `block` -> participant `peer`
  kRecvData,     // participant `peer` -> data block `block`
  kRecvScratch,  // participant `peer` -> scratch slot `slot`
  kFold,         // data block `block` = R(operands): scratch slots, or kOwnData for the data block itself, in order
};

inline constexpr int kOwnData = -1;

struct Step {
  StepKind kind;
  int peer = -1;
  int block = 0;
  int slot = -1;
  // Steps with phase 1 of a chunk are taken after the steps with phase 0 of a few later chunks, so that both directions of a
  // link stay busy. Equal on both ends of a transfer.
  int phase = 0;
  bool scale = false;            // kFold only: apply the operation's scale to this fold (the last one of the block)
  std::vector<int> operands;     // kFold only
  std::vector<int> after;        // indices of earlier steps that must be complete
};

struct Schedule {
  int block_count = 1;
  int slot_count = 0;
  std::vector<Step> steps;  // sends to one peer are in the order in which that peer's receives from us stand in its own list
};

// Half-open element range of `block` when `element_count` elements are cut into `block_count` blocks of nearly equal size whose
// borders fall on multiples of 64 bytes where possible (element_bytes <= 8). Blocks may be empty.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
Range BlockRange(int64_t element_count, size_t element_bytes, int block, int block_count);

}  // namespace farandole
