// Process sets that their members add and remove without the other ranks, in a node and across nodes.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/requests.h"
#include "support/thread_worlds.h"

namespace farandole {
namespace {

Request ChangeByMembers(OpKind kind, std::vector<int64_t> ranks, std::string name) {
  Request request = Make(kind, {}, std::move(name));
  request.ranks = std::move(ranks);
  return request;
}

int64_t IdIn(const OperationPtr& operation) {
  return *reinterpret_cast<const int64_t*>(operation->outputs.at(0).memory.get());
}

class MemberSetsTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(MemberSetsTest, AreMadeUsedAndRemovedWhileTheOthersDoSomethingElse) {
  std::atomic<int> finished{0};
  RunRanks(GetParam(), [&](Engine& engine) {
    const int last = engine.size() - 1;
    for (int round = 0; (engine.rank() == 0 || engine.rank() == last) && round < 200; ++round) {
      OperationPtr added;
      const Status status = SubmitAndWait(engine, ChangeByMembers(OpKind::kAddProcessSet, {0, last}, "pair"), &added);
      ASSERT_TRUE(status.ok()) << status.message();
      std::vector<float> values = Values<float>(engine.rank() == 0 ? 0 : 1, 100, round);
      Request sum = Make(OpKind::kAllreduce, {TensorOf(values, &values)});
      sum.process_set = static_cast<int>(IdIn(added));
      ASSERT_TRUE(SubmitAndWait(engine, sum).ok());
      ExpectSum(values, 2, round);
      ASSERT_TRUE(SubmitAndWait(engine, ChangeByMembers(OpKind::kRemoveProcessSet, {IdIn(added)}, "gone")).ok());
    }
    if (engine.rank() == 1) {
      OperationPtr alone;
      ASSERT_TRUE(SubmitAndWait(engine, ChangeByMembers(OpKind::kAddProcessSet, {1}, "alone"), &alone).ok());
    }
    ++finished;
    std::vector<float> ones(1, 1);
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kAllreduce, {TensorOf(ones, &ones)})).ok());
    EXPECT_EQ(finished, engine.size());
  });
}

TEST_P(MemberSetsTest, OnlyMembersChangeThemAndNotWhileTheyAreInUse) {
  std::atomic<bool> refused{false};
  RunRanks(GetParam(), [&](Engine& engine) {
    OperationPtr added, pending;
    const bool is_member = engine.rank() < 2;
    const Request add = ChangeByMembers(OpKind::kAddProcessSet, {0, 1}, "pair");
    ASSERT_TRUE(!is_member || SubmitAndWait(engine, add, &added).ok());
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "added")).ok());
    const Request remove = ChangeByMembers(OpKind::kRemoveProcessSet, {1}, "gone");
    if (engine.rank() == 2) {
      EXPECT_NE(SubmitAndWait(engine, remove).message().find("rank 2 is not in process set 1"), std::string::npos);
      EXPECT_NE(SubmitAndWait(engine, add).message().find("rank 2 is not among (0, 1)"), std::string::npos);
    }
    Request barrier = Make(OpKind::kBarrier, {}, "in use");
    barrier.process_set = 1;
    if (engine.rank() == 0) {
      ASSERT_TRUE(SubmitTo(engine, barrier, &pending).ok());
      EXPECT_NE(SubmitAndWait(engine, remove).message().find("is in flight on rank 0"), std::string::npos);
      refused = true;
      ASSERT_TRUE(engine.Wait(pending, kWaitMs));
      EXPECT_TRUE(SubmitAndWait(engine, remove).ok());
    } else if (engine.rank() == 1) {
      AwaitThat([&] { return refused.load(); });
      ASSERT_TRUE(SubmitAndWait(engine, barrier).ok());
      EXPECT_EQ(SubmitAndWait(engine, remove).code(), Code::kMismatch);
      EXPECT_TRUE(SubmitAndWait(engine, remove).ok());
    }
    ASSERT_TRUE(SubmitAndWait(engine, Make(OpKind::kBarrier, {}, "end")).ok());
  });
}

// The first change gets an id that these names have, too.
TEST_P(MemberSetsTest, ARankOutsideMayUseAnyName) {
  RunRanks(GetParam(), [&](Engine& engine) {
    const auto sum = [&engine](int number) {
      std::vector<float> ones(30'000, 1);  // through the log, as the change
      const Request request = Make(OpKind::kAllreduce, {TensorOf(ones, &ones)}, "#outside." + std::to_string(number));
      const Status status = SubmitAndWait(engine, request);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(ones[0], engine.size());
    };
    constexpr int kFirst = 20, kLast = 49;
    for (int round = 0; round < 2; ++round) {
      for (int i = kFirst; i <= kLast; ++i) sum(i);
      OperationPtr added;
      const Request add = ChangeByMembers(OpKind::kAddProcessSet, {0, 1}, "pair");
      ASSERT_TRUE(engine.rank() > 1 || SubmitAndWait(engine, add, &added).ok());
      for (int i = kFirst; i <= kLast; ++i) sum(i);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, MemberSetsTest,
                         testing::Values(std::vector<int>{3}, std::vector<int>{2, 1}, std::vector<int>{1, 1, 1}));

}  // namespace
}  // namespace farandole
