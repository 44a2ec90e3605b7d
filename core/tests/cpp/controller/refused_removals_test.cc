// Removals of a process set by its members that some of them refuse, since they still use it: rank 0 keeps few of them.
#include <gtest/gtest.h>

#include "controller/coordinator.h"
#include "controller/described.h"

namespace farandole {
namespace {

class RefusedRemovalsTest : public testing::Test {
 protected:
  RefusedRemovalsTest() {
    for (int rank : {0, 1}) Describe(rank, ChangeOf(OpKind::kAddProcessSet, {0, 1}));
  }

  static Description ChangeOf(OpKind kind, std::vector<int64_t> ranks) {
    Description description;
    description.name = "pair";
    description.signature.kind = kind;
    description.signature.ranks = std::move(ranks);
    return description;
  }

  // Returns how many ranks the coordinator answers.
  size_t Describe(int rank, const Description& description) {
    std::vector<Outgoing> out;
    EXPECT_TRUE(coordinator_.OnMessage(rank, Encode(MessageKind::kDescribe, description), &out).ok());
    return out.size();
  }
  size_t Remove(int rank) { return Describe(rank, ChangeOf(OpKind::kRemoveProcessSet, {1})); }
  size_t Refuse(int rank) {
    Description refusal = ChangeOf(OpKind::kRemoveProcessSet, {1});
    refusal.refusal = "it is in use";
    return Describe(rank, refusal);
  }

  Coordinator coordinator_{LayoutOf({"a", "a", "a"})};
};

TEST_F(RefusedRemovalsTest, NothingIsLeftOfARemovalThatAllMembersRefuse) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Refuse(i % 2), 0);
    EXPECT_EQ(Refuse(1 - i % 2), 0);
    ASSERT_EQ(coordinator_.incomplete(), 0);
  }
  EXPECT_EQ(Remove(0), 0);
  EXPECT_GT(Remove(1), 1) << "the id of the removal";
}

TEST_F(RefusedRemovalsTest, AMemberThatRefusesAgainAndAgainFailsOneCallOfTheOther) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Refuse(0), 0);
  EXPECT_EQ(coordinator_.incomplete(), 1);
  EXPECT_EQ(Remove(1), 1) << "the error";
  EXPECT_EQ(coordinator_.incomplete(), 0);
  EXPECT_EQ(Remove(1), 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Refuse(0), i == 0 ? 1 : 0);
  EXPECT_EQ(coordinator_.incomplete(), 1);
}

}  // namespace
}  // namespace farandole
