// What a descriptor in the driver's poller stands for.
#pragma once

#include <cstdint>

namespace farandole {

enum class TagKind : uint32_t {
  kBell = 0,     // somebody rang
  kControl = 1,  // a message of `rank`
  kDeath = 2,    // the process of `rank` has ended
  kLink = 3,     // data of `rank` can move; only wakes
  kPut = 4,      // what `rank` has put to eager operations, or room for what it gets
};

inline uint64_t MakeTag(TagKind kind, int rank) {
  return static_cast<uint64_t>(kind) << 32 | static_cast<uint32_t>(rank);
}
inline TagKind KindOf(uint64_t tag) { return static_cast<TagKind>(tag >> 32); }
inline int RankOf(uint64_t tag) { return static_cast<int>(static_cast<uint32_t>(tag)); }

}  // namespace farandole
