// The number of random cases of a simulation, and the first one: FARANDOLE_SEEDS=100000 for a long run,
// FARANDOLE_SEED=17 to repeat one case.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace farandole {

struct Seeds {
  uint64_t first = 1;
  uint64_t count = 1;
};

inline Seeds SeedsFromEnvironment(uint64_t usual_count) {
  const char* const first = std::getenv("FARANDOLE_SEED");
  const char* const count = std::getenv("FARANDOLE_SEEDS");
  Seeds seeds;
  if (first != nullptr) seeds.first = std::strtoull(first, nullptr, 10);
  seeds.count = count != nullptr ? std::strtoull(count, nullptr, 10) : first != nullptr ? 1 : usual_count;
  return seeds;
}

}  // namespace farandole
