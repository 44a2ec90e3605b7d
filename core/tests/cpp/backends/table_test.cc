// Which backend performs what.
#include "backends/table.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(BackendList, WithoutAListOursDoesEverything) {
  BackendList backend_list;
  ASSERT_TRUE(BackendList::Read({}, &backend_list).ok());
  EXPECT_TRUE(backend_list.only_ours());
  EXPECT_EQ(backend_list.ToString(), "native");
  EXPECT_EQ(backend_list.Choose({{OpKind::kAllreduce, DType::kFloat32, ReduceOp::kSum, 4, false}}), 0);
}

TEST(BackendList, WhatNobodySupportsIsGivenToNobody) {
  BackendList backend_list;
  ASSERT_TRUE(BackendList::Read({"native"}, &backend_list).ok());
  const OperationFacts gathered{OpKind::kAllgather, DType::kInt8, ReduceOp::kSum, 4, false};
  OperationFacts adasum{OpKind::kReducescatter, DType::kFloat32, ReduceOp::kAdasum, 4, false};
  EXPECT_EQ(backend_list.Choose({gathered, adasum}), -1);
  adasum.kind = OpKind::kAllreduce;
  EXPECT_EQ(backend_list.Choose({gathered, adasum}), 0);
}

TEST(BackendList, ALibraryWithoutANetworkPerformsNothingBetweenNodes) {
  for (const char* name : {"mpi", "gloo"}) {
    BackendList backend_list;
    ASSERT_TRUE(BackendList::Read({name, "native"}, &backend_list, {name}).ok());
    OperationFacts facts;
    const int inside = backend_list.Choose({facts});
    facts.node_count = 2;
    EXPECT_GT(inside, 0) << name;
    EXPECT_EQ(backend_list.Choose({facts}), 0) << name << ": between nodes it is ours";
  }
}

TEST(BackendList, NamesThatAreNoneAreRefusedWithThoseThatAre) {
  BackendList backend_list;
  const Status unknown = BackendList::Read({"native", "nctl"}, &backend_list);
  EXPECT_EQ(unknown.code(), Code::kInvalid);
  EXPECT_NE(unknown.message().find("FARANDOLE_BACKEND=native,nctl: 'nctl' is no backend"), std::string::npos);
  EXPECT_NE(unknown.message().find("the preferred one first: native, "), std::string::npos) << unknown.message();
  EXPECT_NE(BackendList::Read({"native", "native"}, &backend_list).message().find("twice"), std::string::npos);
  EXPECT_NE(BackendList::Read({""}, &backend_list).message().find("'' is no backend"), std::string::npos);
}

}  // namespace
}  // namespace farandole
