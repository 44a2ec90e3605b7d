#include "algorithms/choose_path.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

constexpr size_t kKilobyte = 1 << 10, kMegabyte = 1 << 20;

TEST(ChooseAllreduce, WhatIsForcedIsTaken) {
  for (Algorithm forced : {Algorithm::kDirect, Algorithm::kRing, Algorithm::kTree, Algorithm::kExchange}) {
    for (size_t size_bytes : {size_t{4}, kMegabyte, 64 * kMegabyte}) {
      EXPECT_EQ(ChooseAllreduce(size_bytes, 4, true, forced), forced);
    }
  }
}

TEST(ChooseAllreduce, NeverLeavesTheChoiceOpenAndNeverTakesTheRingWhereOrderMatters) {
  for (int participants = 1; participants <= 1000; ++participants) {
    for (size_t size_bytes = 0; size_bytes <= 256 * kMegabyte; size_bytes = size_bytes * 2 + 1) {
      EXPECT_NE(ChooseAllreduce(size_bytes, participants, false, Algorithm::kAuto), Algorithm::kAuto);
      EXPECT_NE(ChooseAllreduce(size_bytes, participants, true, Algorithm::kAuto), Algorithm::kRing);
    }
  }
}

TEST(ChooseAllreduce, SmallDataGoesToEverybodyAtOnce) {
  EXPECT_EQ(ChooseAllreduce(4, 2, true, Algorithm::kAuto), Algorithm::kExchange);
  EXPECT_EQ(ChooseAllreduce(4 * kKilobyte, 16, true, Algorithm::kAuto), Algorithm::kExchange);
}

TEST(ChooseAllreduce, LongDataIsFoldedByOwnersInOrderAndRoundTheRingWithout) {
  EXPECT_EQ(ChooseAllreduce(64 * kMegabyte, 8, true, Algorithm::kAuto), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllreduce(64 * kMegabyte, 8, false, Algorithm::kAuto), Algorithm::kRing);
}

// The hops of a ring take longer than short blocks do.
TEST(ChooseAllreduce, TheRingBeginsWhereBlocksAreLong) {
  EXPECT_EQ(ChooseAllreduce(512 * kKilobyte, 8, false, Algorithm::kAuto), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllreduce(kMegabyte, 8, false, Algorithm::kAuto), Algorithm::kRing);
  EXPECT_EQ(ChooseAllreduce(64 * kMegabyte, 2, false, Algorithm::kAuto), Algorithm::kDirect);
}

TEST(ChooseAllgather, GoesStraightExceptForLongBlocksOfManyAndWhatIsForced) {
  EXPECT_EQ(ChooseAllgather(16, 100, Algorithm::kAuto), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllgather(kMegabyte, 7, Algorithm::kAuto), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllgather(127 * kKilobyte, 8, Algorithm::kAuto), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllgather(128 * kKilobyte, 8, Algorithm::kAuto), Algorithm::kRing);
  EXPECT_EQ(ChooseAllgather(kMegabyte, 100, Algorithm::kDirect), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllgather(16, 4, Algorithm::kRing), Algorithm::kRing);
  EXPECT_EQ(ChooseAllgather(16, 4, Algorithm::kTree), Algorithm::kDirect);
}

TEST(ChooseAllreduce, SmallDataOfManyParticipantsTakesTheTree) {
  EXPECT_EQ(ChooseAllreduce(16 * kKilobyte, 128, true, Algorithm::kAuto), Algorithm::kTree);
}

}  // namespace
}  // namespace farandole
