// At which visits a failpoint acts.
#include "common/failpoint.h"

#include <gtest/gtest.h>

#include <vector>

namespace farandole {
namespace {

class FailpointTest : public testing::Test {
 protected:
  ~FailpointTest() override { EXPECT_TRUE(SetFailpoints("").ok()); }
};

std::vector<int> FailedVisits(int count) {
  std::vector<int> failed;
  for (int visit = 1; visit <= count; ++visit) {
    if (!VisitFailpoint("test.place").ok()) failed.push_back(visit);
  }
  return failed;
}

TEST_F(FailpointTest, AnErrorNamesItsPlace) {
  ASSERT_TRUE(SetFailpoints("test.place=error").ok());
  const Status status = VisitFailpoint("test.place");
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("test.place"), std::string::npos);
  EXPECT_TRUE(VisitFailpoint("another.place").ok());
}

TEST_F(FailpointTest, AtOneVisitOnly) {
  ASSERT_TRUE(SetFailpoints("test.place=error@3").ok());
  EXPECT_EQ(FailedVisits(10), std::vector<int>{3});
}

TEST_F(FailpointTest, AShareOfVisitsIsTheSameInEveryRun) {
  ASSERT_TRUE(SetFailpoints("test.place=error%10").ok());
  const std::vector<int> first = FailedVisits(1000);
  EXPECT_GT(first.size(), 50u);
  EXPECT_LT(first.size(), 200u);
  ASSERT_TRUE(SetFailpoints("test.place=error%10").ok());
  EXPECT_EQ(FailedVisits(1000), first);
}

TEST_F(FailpointTest, AnUnknownActionIsRefusedWithThoseThatThereAre) {
  const Status status = SetFailpoints("test.place=explode");
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.message().find("kill, stop, hold, error, delay:<ms>"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace farandole
