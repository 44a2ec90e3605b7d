// What a member says when it comes to an operation: how often it has come, and with which turn. Equal on all members,
// or they do not mean the same operation. Pure.
#pragma once

#include <cstdint>

namespace farandole {

// Never 0, which stands for a member that has not come. turn: -1 when the user has named the operation.
inline uint64_t SequenceOf(uint64_t use, int64_t turn) {
  return (static_cast<uint64_t>(turn + 1) & 0x7fffffff) << 32 | static_cast<uint32_t>(use + 1);
}
inline uint64_t UsesIn(uint64_t sequence) { return static_cast<uint32_t>(sequence); }
// Uses of one id are counted in 32 bits. After so many the name asks for a new id, which is there long before they are
// used up.
inline constexpr uint64_t kMostUses = uint64_t{1} << 31;
inline int64_t TurnIn(uint64_t sequence) { return static_cast<int64_t>(sequence >> 32) - 1; }

}  // namespace farandole
