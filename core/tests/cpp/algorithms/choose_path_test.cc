#include "algorithms/choose_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace farandole {
namespace {

constexpr size_t kKilobyte = 1 << 10, kMegabyte = 1 << 20;

// The facts of a sum of four bytes in host memory over groups of these sizes.
PathFacts SumAmong(const std::vector<int>& group_sizes) {
  PathFacts facts;
  facts.set_size = std::accumulate(group_sizes.begin(), group_sizes.end(), 0);
  facts.group_count = static_cast<int>(group_sizes.size());
  facts.largest_group = *std::max_element(group_sizes.begin(), group_sizes.end());
  facts.size_bytes = 4;
  facts.has_early_lanes = facts.group_count > 1;
  return facts;
}

TEST(ChoosePath, EveryLayoutHasItsPathForSmallAndForLargeSums) {
  const struct {
    std::vector<int> groups;
    PathKind small, large;
  } kCases[] = {
      {{1}, PathKind::kSolo, PathKind::kSolo},         {{2}, PathKind::kCells, PathKind::kStaged},
      {{64}, PathKind::kCells, PathKind::kStaged},     {{65}, PathKind::kStaged, PathKind::kStaged},
      {{1, 1, 1}, PathKind::kEarly, PathKind::kLinks}, {{2, 1}, PathKind::kEarly, PathKind::kTwoLevel},
  };
  for (const auto& c : kCases) {
    PathFacts facts = SumAmong(c.groups);
    EXPECT_EQ(ChoosePath(facts), c.small) << c.groups.size() << " groups, first of " << c.groups[0];
    facts.size_bytes = 64 * kMegabyte;
    EXPECT_EQ(ChoosePath(facts), c.large) << c.groups.size() << " groups, first of " << c.groups[0];
    facts.backend = 1;
    EXPECT_EQ(ChoosePath(facts), c.groups == std::vector<int>{1} ? PathKind::kSolo : PathKind::kLibrary);
  }
}

// A rank does not know whether a span is free, nor whether the others wait.
TEST(ChoosePath, ARankAcceptsThePathsThatRankZeroMayHaveChosen) {
  PathFacts pair = SumAmong({2}), far = SumAmong({1, 1}), mixed = SumAmong({2, 1});
  EXPECT_TRUE(IsPossible(PathKind::kCells, pair));
  EXPECT_TRUE(IsPossible(PathKind::kStaged, pair)) << "no span was free";
  EXPECT_FALSE(IsPossible(PathKind::kEarly, pair));
  EXPECT_FALSE(IsPossible(PathKind::kSolo, pair));
  EXPECT_TRUE(IsPossible(PathKind::kEarly, far));
  EXPECT_FALSE(IsPossible(PathKind::kCells, far));
  EXPECT_TRUE(IsPossible(PathKind::kTwoLevel, mixed));
  EXPECT_TRUE(IsPossible(PathKind::kEarly, mixed));
  pair.size_bytes = far.size_bytes = mixed.size_bytes = 64 * kMegabyte;
  EXPECT_FALSE(IsPossible(PathKind::kCells, pair));
  EXPECT_FALSE(IsPossible(PathKind::kEarly, far));
  EXPECT_FALSE(IsPossible(PathKind::kEarly, mixed));
}

TEST(ChoosePath, LimitsAreTheLargestSizesOfCellsAndEarly) {
  PathFacts cells = SumAmong({3}), early = SumAmong({1, 1, 1});
  cells.size_bytes = CellLimitBytes(3);
  early.size_bytes = EarlyLimitBytes(3, 1);
  EXPECT_EQ(ChoosePath(cells), PathKind::kCells);
  EXPECT_EQ(ChoosePath(early), PathKind::kEarly);
  EXPECT_EQ(ChoosePath((++cells.size_bytes, cells)), PathKind::kStaged);
  EXPECT_EQ(ChoosePath((++early.size_bytes, early)), PathKind::kLinks);
  early.size_bytes = 0;
  EXPECT_EQ(ChoosePath(early), PathKind::kLinks) << "nothing to put";
}

TEST(ChoosePath, OnlySumsOfElementsInHostMemoryBeginBeforeTheLogSaysSo) {
  for (const std::vector<int>& groups : {std::vector<int>{2}, {1, 1}}) {
    const PathKind otherwise = groups.size() == 1 ? PathKind::kStaged : PathKind::kLinks;
    PathFacts on_device = SumAmong(groups), adasum = on_device, gather = on_device, in_log = on_device,
              integers = on_device;
    on_device.on_device = true;
    adasum.reduce = ReduceOp::kAdasum;
    gather.kind = OpKind::kAllgather;
    in_log.in_log = true;
    integers.averages_integers = true;
    for (const PathFacts& facts : {on_device, adasum, gather, in_log, integers})
      EXPECT_EQ(ChoosePath(facts), otherwise);
  }
  PathFacts barrier = SumAmong({2});
  barrier.kind = OpKind::kBarrier;
  barrier.size_bytes = 0;
  EXPECT_EQ(ChoosePath(barrier), PathKind::kCells);
}

TEST(ChoosePath, TwoRanksThatWaitForEachSumHaveLargerCells) {
  PathFacts pair = SumAmong({2}), crowd = SumAmong({3});
  pair.size_bytes = CellLimitBytes(2, true);
  crowd.size_bytes = CellLimitBytes(3) + 1;
  for (PathFacts* facts : {&pair, &crowd}) EXPECT_EQ(ChoosePath(*facts), PathKind::kStaged);
  EXPECT_TRUE(IsPossible(PathKind::kCells, pair)) << "a rank does not know whether the others wait";
  pair.awaited = crowd.awaited = true;
  EXPECT_EQ(ChoosePath(pair), PathKind::kCells);
  EXPECT_EQ(ChoosePath(crowd), PathKind::kStaged);
  EXPECT_EQ(ChoosePath((++pair.size_bytes, pair)), PathKind::kStaged) << "cells have no memory for more";
}

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

TEST(ChooseAllreduce, SmallDataTakesExchange) {
  EXPECT_EQ(ChooseAllreduce(4, 2, true, Algorithm::kAuto), Algorithm::kExchange);
  EXPECT_EQ(ChooseAllreduce(4 * kKilobyte, 16, true, Algorithm::kAuto), Algorithm::kExchange);
}

TEST(ChooseAllreduce, LongDataTakesDirectInOrderAndTheRingInAnyOrder) {
  EXPECT_EQ(ChooseAllreduce(64 * kMegabyte, 8, true, Algorithm::kAuto), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllreduce(64 * kMegabyte, 8, false, Algorithm::kAuto), Algorithm::kRing);
}

// For short blocks the hops of a ring take longer than the bytes.
TEST(ChooseAllreduce, TheRingBeginsWhereBlocksAreLong) {
  EXPECT_EQ(ChooseAllreduce(512 * kKilobyte, 8, false, Algorithm::kAuto), Algorithm::kDirect);
  EXPECT_EQ(ChooseAllreduce(kMegabyte, 8, false, Algorithm::kAuto), Algorithm::kRing);
  EXPECT_EQ(ChooseAllreduce(64 * kMegabyte, 2, false, Algorithm::kAuto), Algorithm::kDirect);
}

TEST(ChooseAllgather, IsDirectExceptForLongBlocksOfManyAndWhatIsForced) {
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
