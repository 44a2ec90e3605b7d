// Which back end performs what.
#include "backends/registry.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(Preference, WithoutAListOursDoesEverything) {
  Preference preference;
  ASSERT_TRUE(Preference::Read({}, &preference).ok());
  EXPECT_TRUE(preference.only_ours());
  EXPECT_EQ(preference.ToString(), "native");
  EXPECT_EQ(preference.Choose({{OpKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, 4, false}}), 0);
}

TEST(Preference, WhatNobodySupportsIsGivenToNobody) {
  Preference preference;
  ASSERT_TRUE(Preference::Read({"native"}, &preference).ok());
  const Demand gathered{OpKind::kAllgather, DType::kInt8, ReduceOp::kSum, 4, false};
  Demand adasum{OpKind::kReducescatter, DType::kFloat32, ReduceOp::kAdasum, 4, false};
  EXPECT_EQ(preference.Choose({gathered, adasum}), -1);
  adasum.kind = OpKind::kAllreduce;
  EXPECT_EQ(preference.Choose({gathered, adasum}), 0);
}

TEST(Preference, ALibraryWithoutANetworkPerformsNothingBetweenGroupsUnlessItDoesWithout) {
  for (const char* name : {"mpi", "gloo"}) {
    Preference preference;
    ASSERT_TRUE(Preference::Read({name, "native"}, &preference, {name}).ok());
    Demand demand;
    const int inside = preference.Choose({demand});
    demand.group_count = 2;
    EXPECT_GT(inside, 0) << name;
    EXPECT_EQ(preference.Choose({demand}), 0) << name << ": between groups it is ours";
  }
}

TEST(Preference, NamesThatAreNoneAreRefusedWithThoseThatAre) {
  Preference preference;
  const Status unknown = Preference::Read({"native", "nctl"}, &preference);
  EXPECT_EQ(unknown.code(), Code::kInvalid);
  EXPECT_NE(unknown.message().find("FARANDOLE_BACKEND=native,nctl: 'nctl' is no back end"), std::string::npos);
  EXPECT_NE(unknown.message().find("the preferred one first: native, "), std::string::npos) << unknown.message();
  EXPECT_NE(Preference::Read({"native", "native"}, &preference).message().find("twice"), std::string::npos);
  EXPECT_NE(Preference::Read({""}, &preference).message().find("'' is no back end"), std::string::npos);
}

}  // namespace
}  // namespace farandole
