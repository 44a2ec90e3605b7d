#include "p2p/matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace farandole {
namespace {

TransferPtr ReceiveFrom(int source, uint64_t tag, int context = 0) {
  auto receive = std::make_shared<Transfer>();
  receive->peer = source;
  receive->key = {context, tag};
  return receive;
}

ArrivalPtr From(int source) {
  auto arrival = std::make_shared<Arrival>();
  arrival->source = source;
  return arrival;
}

TEST(MatcherTest, AMessageTakesTheFirstReceiveThatFitsIt) {
  Matcher matcher;
  const TransferPtr of_two = ReceiveFrom(2, 5), any = ReceiveFrom(kAnySource, 5), of_one = ReceiveFrom(1, 5);
  for (const TransferPtr& each : {of_two, any, of_one}) EXPECT_EQ(matcher.Post(each), nullptr);
  EXPECT_EQ(matcher.Arrive({0, 6}, 1), nullptr) << "another tag";
  EXPECT_EQ(matcher.Arrive({1, 5}, 1), nullptr) << "another context";
  EXPECT_EQ(matcher.Arrive({0, 5}, 1), any);
  EXPECT_EQ(matcher.Arrive({0, 5}, 1), of_one);
  EXPECT_EQ(matcher.Arrive({0, 5}, 1), nullptr);
  EXPECT_EQ(matcher.Arrive({0, 5}, 2), of_two);
  EXPECT_EQ(matcher.waiting(), 0u);
}

TEST(MatcherTest, AReceiveTakesTheFirstMessageThatItFits) {
  Matcher matcher;
  const ArrivalPtr first = From(2), second = From(1), third = From(2);
  for (const ArrivalPtr& each : {first, second, third}) matcher.Keep({3, 0}, each);
  EXPECT_EQ(matcher.Post(ReceiveFrom(1, 0, 3)), second);
  EXPECT_EQ(matcher.Post(ReceiveFrom(kAnySource, 0, 3)), first);
  EXPECT_EQ(matcher.Post(ReceiveFrom(kAnySource, 0, 3)), third);
  EXPECT_EQ(matcher.waiting(), 0u);
}

TEST(MatcherTest, WhatIsCancelledOrDroppedIsNotMatched) {
  Matcher matcher;
  const TransferPtr of_one = ReceiveFrom(1, 0), any = ReceiveFrom(kAnySource, 0), of_two = ReceiveFrom(2, 9);
  for (const TransferPtr& each : {of_one, any, of_two}) matcher.Post(each);
  EXPECT_TRUE(matcher.Cancel(of_one));
  EXPECT_FALSE(matcher.Cancel(of_one));
  EXPECT_EQ(matcher.TakeReceives(2), std::vector<TransferPtr>{of_two});
  EXPECT_EQ(matcher.Arrive({0, 0}, 1), any);
  matcher.Keep({0, 0}, From(1));
  matcher.Keep({0, 0}, From(2));
  matcher.DropArrivals([](const Arrival& each) { return each.source == 1; });
  EXPECT_EQ(matcher.waiting(), 1u);
  EXPECT_EQ(matcher.Post(ReceiveFrom(1, 0)), nullptr);
  EXPECT_EQ(matcher.TakeReceives(kAnySource).size(), 1u);
  EXPECT_EQ(matcher.waiting(), 1u);
}

}  // namespace
}  // namespace farandole
