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

using Sizes = std::vector<int>;  // of the groups

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

  // `body(job, seed)` runs one job, of a test that has `share` of a thousand.
  template <typename Body>
  void ForSeeds(uint64_t share, Body body, Planted planted = Planted::kNone) {
    const uint64_t only = NumberFrom("FARANDOLE_SEED", 0);
    const uint64_t count = std::max<uint64_t>(1, share * NumberFrom("FARANDOLE_SEEDS", 1000) / 1000);
    const uint64_t first = only > 0 ? only : 1, last = only > 0 ? only : count;
    for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
      SCOPED_TRACE("FARANDOLE_SEED=" + std::to_string(seed));
      SimulatedJob job(GetParam(), seed, planted);
      body(job, seed);
      if (planted != Planted::kNone) continue;
      EXPECT_EQ(job.complaint(), "");
    }
  }
};

inline const auto kAllGroups = testing::Values(Sizes{1}, Sizes{2}, Sizes{4}, Sizes{1, 1}, Sizes{1, 1, 1}, Sizes{2, 1},
                                               Sizes{3, 2, 2});
inline const auto kSeveralRanks =
    testing::Values(Sizes{2}, Sizes{4}, Sizes{1, 1}, Sizes{1, 1, 1}, Sizes{2, 1}, Sizes{3, 2, 2});

}  // namespace farandole
