// How simulated jobs are run: over layouts and seeds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "controller/simulated_job.h"

namespace farandole {

using Sizes = std::vector<int>;  // of the nodes

// FARANDOLE_SEED runs that seed alone; FARANDOLE_SEEDS is how many jobs all tests together run, about.
inline uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Simulated : public testing::TestWithParam<Sizes> {
 protected:
  int size() const {
    int all = 0;
    for (int each : GetParam()) all += each;
    return all;
  }

  // `body(job, seed)` runs one job, of a test that has `share` of a thousand. The log of every fourth is often full.
  template <typename Body>
  void ForSeeds(uint64_t share, Body body, Planted planted = Planted::kNone, uint64_t max_uses = kMaxUses) {
    const uint64_t only = NumberFrom("FARANDOLE_SEED", 0);
    const uint64_t count = std::max<uint64_t>(1, share * NumberFrom("FARANDOLE_SEEDS", 1000) / 1000);
    const uint64_t first = only > 0 ? only : 1, last = only > 0 ? only : count;
    for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
      SCOPED_TRACE("FARANDOLE_SEED=" + std::to_string(seed));
      SimulatedJob job(GetParam(), seed, planted, {max_uses, seed % 4 == 0 ? 16 : NodeLog::kEntries});
      body(job, seed);
      if (planted != Planted::kNone) continue;
      EXPECT_EQ(job.error(), "");
    }
  }
};

// A random set of at least one rank.
inline Ranks SomeOf(int size, std::mt19937_64* random) {
  Ranks ranks = RanksBelow(size);
  std::shuffle(ranks.begin(), ranks.end(), *random);
  ranks.resize(1 + (*random)() % ranks.size());
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// One call of any kind on `ranks`, some or all of the members of a set.
inline void AnyRightCall(Scripts* scripts, const Ranks& ranks, const Ranks& members, int set, std::mt19937_64* random) {
  const std::string name = "n" + std::to_string((*random)() % 4);
  const auto rows = static_cast<int64_t>((*random)() % 5);
  const int root = members[(*random)() % members.size()];
  switch ((*random)() % 9) {
    case 0:
      return scripts->On(ranks, Large(name, set));
    case 1:
      return scripts->On(ranks, [&](int rank) { return Allgather(name, rows + rank, set); });
    case 2:
      return scripts->On(
          ranks, [&](int rank) { return Alltoall(name, std::vector<int64_t>(members.size(), rows + rank), set); });
    case 3:
      return scripts->On(ranks, Broadcast("b" + name, root, set));
    case 4:
      return scripts->On(ranks, Of(OpKind::kBarrier, "barrier", set));
    case 5:
      return scripts->On(ranks, [&](int) { return Small("", set); }, true);
    case 6:
      return scripts->On(ranks, Of(OpKind::kReducescatter, "r" + name, set));
    default:
      return scripts->On(ranks, Small("s" + name, set));
  }
}

// The same; some of the ranks may refuse it.
inline void AnyCall(Scripts* scripts, const Ranks& ranks, const Ranks& members, int set, std::mt19937_64* random) {
  AnyRightCall(scripts, ranks, members, set, random);
  if ((*random)() % 6 > 0) return;
  for (int rank : ranks) {
    const bool unnamed = scripts->of(rank).back().unnamed;  // of these others hear only when time has passed
    if (!unnamed && (*random)() % 2 == 0) scripts->RefuseLast(rank);
  }
}

inline const auto kAllNodes =
    testing::Values(Sizes{1}, Sizes{2}, Sizes{4}, Sizes{1, 1}, Sizes{1, 1, 1}, Sizes{2, 1}, Sizes{3, 2, 2});
inline const auto kSeveralRanks =
    testing::Values(Sizes{2}, Sizes{4}, Sizes{1, 1}, Sizes{1, 1, 1}, Sizes{2, 1}, Sizes{3, 2, 2});

}  // namespace farandole
