#include "algorithms/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "algorithms/partition.h"
#include "algorithms/schedule.h"
#include "collectives/staging.h"

namespace farandole {
namespace {

constexpr size_t kKilobyte = 1 << 10, kMegabyte = 1 << 20;

// The facts of a sum of four bytes in host memory over nodes of these sizes.
OperationFacts SumAmong(const std::vector<int>& node_sizes) {
  OperationFacts facts;
  facts.set_size = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
  facts.node_count = static_cast<int>(node_sizes.size());
  facts.largest_node = *std::max_element(node_sizes.begin(), node_sizes.end());
  facts.size_bytes = 4;
  facts.has_early_lanes = facts.node_count > 1;
  return facts;
}

TEST(ChooseProtocol, SmallSumsBeginAtSubmission) {
  const struct {
    std::vector<int> nodes;
    Protocol small;
  } kCases[] = {
      {{2}, Protocol::kSlots},       {{64}, Protocol::kSlots},   {{65}, Protocol::kNegotiated},
      {{1, 1, 1}, Protocol::kEarly}, {{2, 1}, Protocol::kEarly},
  };
  for (const auto& c : kCases) {
    OperationFacts facts = SumAmong(c.nodes);
    EXPECT_EQ(ChooseProtocol(facts), c.small) << c.nodes.size() << " nodes, first of " << c.nodes[0];
    facts.backend = 1;
    EXPECT_EQ(ChooseProtocol(facts), Protocol::kNegotiated);
    facts = SumAmong(c.nodes);
    facts.size_bytes = 64 * kMegabyte;
    EXPECT_EQ(ChooseProtocol(facts), Protocol::kNegotiated);
  }
}

// A rank does not know whether a buffer range is free, nor whether the others wait.
TEST(ChooseProtocol, ARankAcceptsWhatRankZeroMayHaveChosen) {
  OperationFacts pair = SumAmong({2}), far = SumAmong({1, 1}), mixed = SumAmong({2, 1});
  EXPECT_TRUE(IsPossible(Protocol::kSlots, pair));
  EXPECT_TRUE(IsPossible(Protocol::kNegotiated, pair)) << "no buffer range was free";
  EXPECT_FALSE(IsPossible(Protocol::kEarly, pair));
  EXPECT_TRUE(IsPossible(Protocol::kEarly, far));
  EXPECT_FALSE(IsPossible(Protocol::kSlots, far));
  EXPECT_TRUE(IsPossible(Protocol::kNegotiated, mixed));
  EXPECT_TRUE(IsPossible(Protocol::kEarly, mixed));
  pair.size_bytes = far.size_bytes = mixed.size_bytes = 64 * kMegabyte;
  EXPECT_FALSE(IsPossible(Protocol::kSlots, pair));
  EXPECT_FALSE(IsPossible(Protocol::kEarly, far));
  EXPECT_FALSE(IsPossible(Protocol::kEarly, mixed));
}

TEST(ChooseProtocol, LimitsAreTheLargestSizesOfSlotsAndEarly) {
  OperationFacts slots = SumAmong({3}), early = SumAmong({1, 1, 1});
  slots.size_bytes = SlotLimitBytes(3);
  early.size_bytes = EarlyLimitBytes(3, 1);
  EXPECT_EQ(ChooseProtocol(slots), Protocol::kSlots);
  EXPECT_EQ(ChooseProtocol(early), Protocol::kEarly);
  EXPECT_EQ(ChooseProtocol((++slots.size_bytes, slots)), Protocol::kNegotiated);
  EXPECT_EQ(ChooseProtocol((++early.size_bytes, early)), Protocol::kNegotiated);
  early.size_bytes = 0;
  EXPECT_EQ(ChooseProtocol(early), Protocol::kNegotiated) << "nothing to send";
}

TEST(ChooseProtocol, OnlySumsOfElementsInHostMemoryBeginBeforeTheLogSaysSo) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1}}) {
    OperationFacts on_device = SumAmong(nodes), adasum = on_device, gather = on_device, integers = on_device;
    on_device.on_device = true;
    adasum.reduce = ReduceOp::kAdasum;
    gather.kind = OpKind::kAllgather;
    integers.averages_integers = true;
    for (const OperationFacts& facts : {on_device, adasum, gather, integers})
      EXPECT_EQ(ChooseProtocol(facts), Protocol::kNegotiated);
  }
  OperationFacts barrier = SumAmong({2});
  barrier.kind = OpKind::kBarrier;
  barrier.size_bytes = 0;
  EXPECT_EQ(ChooseProtocol(barrier), Protocol::kSlots);
}

TEST(ChooseProtocol, TwoRanksThatWaitForEachSumHaveLargerSlots) {
  OperationFacts pair = SumAmong({2}), crowd = SumAmong({3});
  pair.size_bytes = SlotLimitBytes(2, true);
  crowd.size_bytes = SlotLimitBytes(3) + 1;
  for (OperationFacts* facts : {&pair, &crowd}) EXPECT_EQ(ChooseProtocol(*facts), Protocol::kNegotiated);
  EXPECT_TRUE(IsPossible(Protocol::kSlots, pair)) << "a rank does not know whether the others wait";
  pair.awaited = crowd.awaited = true;
  EXPECT_EQ(ChooseProtocol(pair), Protocol::kSlots);
  EXPECT_EQ(ChooseProtocol(crowd), Protocol::kNegotiated);
  EXPECT_EQ(ChooseProtocol((++pair.size_bytes, pair)), Protocol::kNegotiated) << "slots have no memory for more";
}

// ---- plans

TaskFacts TaskOf(OpKind kind, size_t size_bytes, int nodes, int largest_node = 1) {
  TaskFacts facts;
  facts.kind = kind;
  facts.size_bytes = size_bytes;
  facts.node_count = nodes;
  facts.largest_node = largest_node;
  facts.order_matters = true;
  return facts;
}

TaskFacts Forced(TaskFacts facts, Algorithm forced) {
  facts.forced = forced;
  return facts;
}

TaskFacts InAnyOrder(TaskFacts facts) {
  facts.order_matters = false;
  return facts;
}

Algorithm AllreduceBy(size_t size_bytes, int nodes) {
  return ChoosePlan(TaskOf(OpKind::kAllreduce, size_bytes, nodes)).algorithm;
}

Algorithm AllreduceInAnyOrderBy(size_t size_bytes, int nodes) {
  return ChoosePlan(InAnyOrder(TaskOf(OpKind::kAllreduce, size_bytes, nodes))).algorithm;
}

Algorithm AllgatherBy(size_t size_bytes, int nodes, Algorithm forced = Algorithm::kAuto) {
  return ChoosePlan(Forced(TaskOf(OpKind::kAllgather, size_bytes, nodes), forced)).algorithm;
}

TEST(ChoosePlan, ThePathFollowsFromTheBackendAndTheLayout) {
  TaskFacts facts = TaskOf(OpKind::kAllreduce, kMegabyte, 1, 2);
  EXPECT_EQ(ChoosePlan(facts).path, PathKind::kStaged);
  EXPECT_EQ(ChoosePlan(facts).algorithm, Algorithm::kAuto) << "nothing crosses between nodes";
  EXPECT_EQ(ChoosePlan(TaskOf(OpKind::kAllreduce, kMegabyte, 3, 1)).path, PathKind::kFlat);
  EXPECT_EQ(ChoosePlan(TaskOf(OpKind::kAllreduce, kMegabyte, 3, 2)).path, PathKind::kTwoLevel);
  facts.backend = 2;
  EXPECT_EQ(ChoosePlan(facts).path, PathKind::kLibrary);
  EXPECT_EQ(ChoosePlan(facts).backend, 2);
}

TEST(ChoosePlan, OnlyAllreducesAndAllgathersHaveAChoiceOfSchedules) {
  for (OpKind kind : {OpKind::kBroadcast, OpKind::kAlltoall, OpKind::kReducescatter})
    EXPECT_EQ(ChoosePlan(Forced(TaskOf(kind, kMegabyte, 4), Algorithm::kRing)).algorithm, Algorithm::kAuto);
}

TEST(ChoosePlan, TheStepsOfATaskAreDirect) {
  TaskFacts facts = Forced(TaskOf(OpKind::kAllreduce, 64 * kMegabyte, 8), Algorithm::kRing);
  facts.in_steps = true;
  EXPECT_EQ(ChoosePlan(facts).algorithm, Algorithm::kDirect);
}

TEST(ChoosePlan, WhatIsForcedIsTaken) {
  for (Algorithm forced : {Algorithm::kDirect, Algorithm::kRing, Algorithm::kTree, Algorithm::kExchange}) {
    for (size_t size_bytes : {size_t{4}, kMegabyte, 64 * kMegabyte}) {
      EXPECT_EQ(ChoosePlan(Forced(TaskOf(OpKind::kAllreduce, size_bytes, 4), forced)).algorithm, forced);
    }
  }
}

TEST(ChoosePlan, NeverLeavesTheChoiceOpenAndNeverTakesTheRingWhereOrderMatters) {
  for (int participants = 2; participants <= 1000; ++participants) {
    for (size_t size_bytes = 0; size_bytes <= 256 * kMegabyte; size_bytes = size_bytes * 2 + 1) {
      EXPECT_NE(AllreduceInAnyOrderBy(size_bytes, participants), Algorithm::kAuto);
      EXPECT_NE(AllreduceBy(size_bytes, participants), Algorithm::kRing);
    }
  }
}

TEST(ChoosePlan, SmallDataTakesExchange) {
  EXPECT_EQ(AllreduceBy(4, 2), Algorithm::kExchange);
  EXPECT_EQ(AllreduceBy(4 * kKilobyte, 16), Algorithm::kExchange);
}

TEST(ChoosePlan, LongDataTakesDirectInOrderAndTheRingInAnyOrder) {
  EXPECT_EQ(AllreduceBy(64 * kMegabyte, 8), Algorithm::kDirect);
  EXPECT_EQ(AllreduceInAnyOrderBy(64 * kMegabyte, 8), Algorithm::kRing);
}

// Rounds overlap, and a ring would need more of them at once.
TEST(ChoosePlan, TwoLevelsTakeNoRingByThemselves) {
  for (OpKind kind : {OpKind::kAllreduce, OpKind::kAllgather}) {
    const TaskFacts facts = InAnyOrder(TaskOf(kind, 64 * kMegabyte, 8, 2));
    EXPECT_EQ(ChoosePlan(facts).algorithm, Algorithm::kDirect);
    EXPECT_EQ(ChoosePlan(Forced(facts, Algorithm::kRing)).algorithm, Algorithm::kRing);
  }
}

Schedule ScheduleOf(Algorithm algorithm, int nodes) {
  if (algorithm == Algorithm::kRing) return RingAllreduce(nodes, 0);
  return algorithm == Algorithm::kTree ? TreeAllreduce(nodes, 0) : DirectAllreduce(nodes, 0);
}

TEST(ChoosePlan, TwoLevelsTakeOnlySchedulesWhoseRoundsFitStaging) {
  for (int nodes : {2, 3, 8, 9, 10, 11, 64, 255, 256, 257, 400}) {
    for (Algorithm forced : {Algorithm::kAuto, Algorithm::kRing, Algorithm::kTree}) {
      const Algorithm chosen = ChoosePlan(Forced(TaskOf(OpKind::kAllreduce, kKilobyte, nodes, 2), forced)).algorithm;
      const int phases = ScheduleOf(chosen, nodes).phase_count;
      EXPECT_LT(ChunksBeforeLastPhase(phases, kRoundsUnderWay), static_cast<int64_t>(kInterNodeDepth)) << nodes;
    }
  }
  EXPECT_EQ(ChoosePlan(Forced(TaskOf(OpKind::kAllreduce, kMegabyte, 9, 2), Algorithm::kRing)).algorithm,
            Algorithm::kRing);
  EXPECT_EQ(ChoosePlan(Forced(TaskOf(OpKind::kAllreduce, kMegabyte, 400), Algorithm::kRing)).algorithm,
            Algorithm::kRing);
}

// For short blocks the hops of a ring take longer than the bytes.
TEST(ChoosePlan, TheRingBeginsWhereBlocksAreLong) {
  EXPECT_EQ(AllreduceInAnyOrderBy(512 * kKilobyte, 8), Algorithm::kDirect);
  EXPECT_EQ(AllreduceInAnyOrderBy(kMegabyte, 8), Algorithm::kRing);
  EXPECT_EQ(AllreduceInAnyOrderBy(64 * kMegabyte, 2), Algorithm::kDirect);
}

TEST(ChoosePlan, SmallDataOfManyParticipantsTakesTheTree) {
  EXPECT_EQ(AllreduceBy(16 * kKilobyte, 128), Algorithm::kTree);
}

TEST(ChoosePlan, AllgathersAreDirectExceptForLongBlocksOfManyAndWhatIsForced) {
  EXPECT_EQ(AllgatherBy(16, 100), Algorithm::kDirect);
  EXPECT_EQ(AllgatherBy(kMegabyte, 7), Algorithm::kDirect);
  EXPECT_EQ(AllgatherBy(127 * kKilobyte, 8), Algorithm::kDirect);
  EXPECT_EQ(AllgatherBy(128 * kKilobyte, 8), Algorithm::kRing);
  EXPECT_EQ(AllgatherBy(kMegabyte, 100, Algorithm::kDirect), Algorithm::kDirect);
  EXPECT_EQ(AllgatherBy(16, 4, Algorithm::kRing), Algorithm::kRing);
  EXPECT_EQ(AllgatherBy(16, 4, Algorithm::kTree), Algorithm::kDirect);
}

TEST(Plan, ItsTextNamesThePathAndTheSchedule) {
  EXPECT_EQ(TextOfPlan(ChoosePlan(Forced(TaskOf(OpKind::kAllreduce, 4, 3), Algorithm::kRing)).code()),
            "inter-node links with the ring schedule");
  EXPECT_EQ(TextOfPlan(ChoosePlan(TaskOf(OpKind::kBroadcast, 4, 3, 2)).code()), "two levels");
  EXPECT_EQ(TextOfPlan(0xffffff), "unknown");
}

}  // namespace
}  // namespace farandole
