// Small pieces of the board's span memory: what an operation wants of it, on which all ranks must be of one mind, and
// who gives it out, in powers of two: the coordinator alone. Pure.
//
// Buddies: a block is halved until it is small enough, and a half that comes back joins its other half as soon as that
// is free too. So however the memory was cut before, all of it fits everything again once all of it is back.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "controller/signature.h"
#include "world/process_set.h"

namespace farandole {

inline constexpr int64_t kSpanAlignment = 256;  // and the smallest

// The largest allreduce whose data goes through a span, where every member folds by itself (collectives/cells.h). Two
// cores of an Intel Xeon, small beside staged, interleaved, minimum in microseconds:
//
//              16 KB         32 KB         64 KB        128 KB        256 KB
//   2 ranks   3.5 |  3.5    4.8 |  5.4    6.9 |  5.8     13 | 10       26 | 18
//   3 ranks   7.1 | 15.6     10 | 17.6     16 | 23       28 | 34       52 | 53
//   4 ranks   8.3 | 14.3     12 | 16.6     19 | 23       36 | 35       74 | 61
//
// For two ranks and 64 KB nearer cores weigh the other way: two of an AMD EPYC take 2.4 for it, and 4.5 staged for
// 128 KB; so it depends on the machine, see IsBetterStaged. More than four ranks have not been measured; with a core
// for each, many would read too much.
int64_t SmallLimitBytes(int set_size);

// Whether a small allreduce is nevertheless faster without a span, on a machine whose cores have second-level caches of
// this size (0: not known). Both machines above are told apart by them: 2 MB, as every Xeon since 2023 has, beside the
// 1 MB or less of an EPYC. The coordinator alone asks, so that all ranks do the same.
bool IsBetterStaged(const Signature& signature, const ProcessSet& set, int64_t second_level_cache_bytes);

// Small operations: allreduces and barriers of a set inside one group, in host memory, that nobody else performs.
bool IsSmall(const Signature& signature, const ProcessSet& set);

// Bytes of span that an operation wants, two halves: the extents of all positions, or the data of a small one. 0 when
// it wants none.
int64_t WantedSpanBytes(const Signature& signature, const ProcessSet& set);

class SpanAllocator {
 public:
  explicit SpanAllocator(int64_t capacity_bytes);

  // Offset of at least size_bytes, or -1 when there is no room (the operation then does without) or size_bytes is 0.
  int64_t Take(int64_t size_bytes);
  // REQUIRES: offset came from Take(size_bytes).
  void GiveBack(int64_t offset, int64_t size_bytes);

 private:
  std::map<int64_t, std::set<int64_t>> free_;  // size, a power of two -> offsets, multiples of the size
};

}  // namespace farandole
