#include "common/waiting.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(WaiterTest, PausesAndYieldsAsOftenAsToldAndThenSleeps) {
  Waiter waiter(3, 2);
  for (int round = 0; round < 2; ++round) {
    int looks = 0;
    EXPECT_FALSE(waiter.Until([&] { return ++looks > 100; }));
    EXPECT_LE(looks, 3 + 2 + 1);
    EXPECT_GE(looks, 3 + 1 + 1);
    waiter.Reset();
  }
}

// Beside programs that compute, a yield may take as long as all their time slices.
TEST(WaiterTest, YieldsForALimitedTime) {
  constexpr int kYields = 20'000'000;
  Waiter waiter(0, kYields);
  int yields = 0;
  while (waiter.Again()) ++yields;
  EXPECT_LT(yields, kYields);
}

}  // namespace
}  // namespace farandole
