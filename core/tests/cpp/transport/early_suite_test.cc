// The early lane of every Transport: messages that come before or after their receive is posted, and how a peer ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "transport/both_lanes.h"

namespace farandole::tests {
namespace {

constexpr size_t kLongBytes = 600'000;

bool SameTag(const MessageTag& a, const MessageTag& b) {
  const auto all = [](const MessageTag& tag) {
    return std::tie(tag.id, tag.serial, tag.operation, tag.channel, tag.plan, tag.lane);
  };
  return all(a) == all(b);
}

class EarlySuite : public ::testing::TestWithParam<TransportKind> {
 protected:
  DrivenRanks ranks_{GetParam().make(2)};
  DrivenRank& first() { return ranks_[0]; }
  DrivenRank& second() { return ranks_[1]; }
};

// ---- any order

struct EarlyMessage {
  int from, to;
  MessageTag tag;
  uint32_t part;
  std::vector<uint8_t> sent, received;
};

// Operations of one to four parts, each between two ranks, some with the same serial number.
std::vector<EarlyMessage> RandomMessages(int ranks, std::mt19937* random) {
  std::vector<EarlyMessage> messages;
  for (uint32_t operation = 0; operation < 24; ++operation) {
    const int from = static_cast<int>((*random)()) & 1, to = ranks - 1 - from;
    for (uint32_t part = (*random)() % 4 + 1; part-- > 0;) {
      const size_t size_bytes = 1 + (*random)() % std::min<size_t>(kLongBytes, size_t{1} << ((*random)() % 21));
      messages.push_back({from, to, EarlyTag(operation / 3 + 1, operation % 3), part,
                          BytesOfMessage(messages.size(), size_bytes), std::vector<uint8_t>(size_bytes)});
    }
  }
  return messages;
}

uint64_t SendOf(size_t message) { return 2 * message; }
uint64_t ReceiveOf(size_t message) { return 2 * message + 1; }

void ExpectEachCompletedOnce(const std::vector<EarlyMessage>& messages, DrivenRanks* ranks) {
  std::map<std::pair<int, uint64_t>, int> completed;
  for (int rank = 0; rank < ranks->size(); ++rank) {
    for (const auto& each : (*ranks)[rank].completions) {
      EXPECT_TRUE(each.status.ok());
      ++completed[{rank, each.context}];
    }
  }
  ASSERT_EQ(completed.size(), 2 * messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    EXPECT_EQ((completed[{messages[i].from, SendOf(i)}]), 1);
    EXPECT_EQ((completed[{messages[i].to, ReceiveOf(i)}]), 1);
  }
}

TEST_P(EarlySuite, MessagesMatchByTagInAnyOrderOfPostsBothWaysAtOnce) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    DrivenRanks ranks(GetParam().make(2));
    std::vector<EarlyMessage> messages = RandomMessages(2, &random);
    std::vector<uint64_t> posts(2 * messages.size());
    for (size_t i = 0; i < posts.size(); ++i) posts[i] = i;
    std::shuffle(posts.begin(), posts.end(), random);
    for (uint64_t post : posts) {
      EarlyMessage& each = messages[post / 2];
      const size_t size_bytes = each.sent.size();
      if (post % 2 == 0) ranks[each.from]->PostSend(each.to, each.tag, each.part, each.sent.data(), size_bytes, post);
      if (post % 2 != 0)
        ranks[each.to]->PostReceive(each.from, each.tag, each.part, each.received.data(), size_bytes, post);
      for (auto polls = random() % 4; polls > 0; --polls) ranks[static_cast<int>(random() % 2)].Poll();
    }
    const auto is_done = [&] { return ranks[0].completions.size() + ranks[1].completions.size() == posts.size(); };
    ASSERT_TRUE(ranks.PollUntil(is_done)) << "seed " << seed;
    ExpectEachCompletedOnce(messages, &ranks);
    for (const EarlyMessage& each : messages) EXPECT_TRUE(each.received == each.sent) << "seed " << seed;
  }
}

// A long message takes several calls, after which the kernel has no news: the transport has to come back by itself.
TEST_P(EarlySuite, WhatComesBeforeItsReceiveIsReportedWithItsTagEachMessageOnce) {
  const std::vector<uint8_t> data = BytesOfMessage(1, kLongBytes);
  for (uint32_t serial = 1; serial <= 3; ++serial)
    first()->PostSend(1, EarlyTag(serial), 0, data.data(), data.size(), serial);
  ASSERT_TRUE(ranks_.PollUntil([&] { return second().sink.arrivals.size() == 3; }));
  std::set<uint32_t> serials;
  for (const NotingSink::Arrival& arrival : second().sink.arrivals) {
    EXPECT_EQ(arrival.peer, 0);
    EXPECT_TRUE(SameTag(arrival.tag, EarlyTag(arrival.tag.serial)));
    serials.insert(arrival.tag.serial);
  }
  EXPECT_EQ(serials, (std::set<uint32_t>{1, 2, 3}));
}

TEST_P(EarlySuite, WhatIsReceivedAtOnceIsNotReported) {
  std::vector<uint8_t> data = BytesOfMessage(1, 1000), room(data.size());
  second()->PostReceive(0, EarlyTag(1), 0, room.data(), room.size(), 1);
  first()->PostSend(1, EarlyTag(1), 0, data.data(), data.size(), 2);
  ASSERT_TRUE(ranks_.PollUntil([&] { return second().HasCompleted(1); }));
  EXPECT_EQ(room, data);
  EXPECT_TRUE(second().sink.arrivals.empty());
}

// ---- the peer

TEST_P(EarlySuite, AnOperationIsHeardOfWithItsFirstMessage) {
  std::vector<uint8_t> data = BytesOfMessage(1, 1000), room(data.size()), next(data.size());
  second()->PostReceive(0, EarlyTag(1, 1), 0, room.data(), room.size(), 1);
  second()->PostReceive(0, EarlyTag(1, 2), 0, next.data(), next.size(), 2);
  for (int i = 0; i < 50; ++i) ranks_.Poll();
  EXPECT_FALSE(second()->HasHeader(0, EarlyTag(1, 1)));
  first()->PostSend(1, EarlyTag(1, 1), 0, data.data(), data.size(), 3);
  EXPECT_TRUE(ranks_.PollUntil([&] { return second()->HasHeader(0, EarlyTag(1, 1)); }));
  EXPECT_FALSE(second()->HasHeader(0, EarlyTag(1, 2))) << "this is another operation";
}

TEST_P(EarlySuite, AGoodbyeComesBehindAllEarlierMessages) {
  constexpr uint32_t kCount = 8;
  const std::vector<uint8_t> data = BytesOfMessage(1, 200'000);
  std::vector<std::vector<uint8_t>> rooms(kCount, std::vector<uint8_t>(data.size()));
  for (uint32_t i = 0; i < kCount; i += 2)
    second()->PostReceive(0, EarlyTag(i + 1), 0, rooms[i].data(), rooms[i].size(), i);
  for (uint32_t i = 0; i < kCount; ++i) first()->PostSend(1, EarlyTag(i + 1), 0, data.data(), data.size(), i);
  first()->PostGoodbye(1, 0);
  first()->PostGoodbye(1, 7);
  size_t arrived = 0, heard = 0;
  second().sink.at_goodbye = [&] {
    arrived = second().sink.arrivals.size();
    heard = 0;
    for (uint32_t i = 0; i < kCount; i += 2) heard += second()->HasHeader(0, EarlyTag(i + 1)) ? 1 : 0;
  };
  ASSERT_TRUE(ranks_.PollUntil([&] { return second().sink.goodbyes.size() == 2; }));
  EXPECT_EQ(second().sink.goodbyes, (std::vector<std::pair<int, int>>{{0, 0}, {0, 7}}));
  EXPECT_EQ(arrived, kCount / 2);
  EXPECT_EQ(heard, kCount / 2);
  EXPECT_TRUE(second()->CanSendEarly(0)) << "who says goodbye is still there";
}

TEST_P(EarlySuite, TheEndOfThePeerIsReportedOnceBehindAllThatItHasSent) {
  const std::vector<uint8_t> data = BytesOfMessage(1, kLongBytes);
  std::vector<uint8_t> room(data.size()), never(data.size());
  second()->PostReceive(0, EarlyTag(2), 0, room.data(), room.size(), 2);
  second()->PostReceive(0, EarlyTag(3), 0, never.data(), never.size(), 3);
  first()->PostSend(1, EarlyTag(1), 0, data.data(), 40'000, 1);
  first()->PostSend(1, EarlyTag(2), 0, data.data(), data.size(), 2);
  ASSERT_TRUE(ranks_.PollUntil([&] { return first().completions.size() == 2; }));
  EXPECT_TRUE(second()->CanSendEarly(0));
  size_t arrived = 0;
  second().sink.at_end = [&] { arrived = second().sink.arrivals.size(); };
  first().Leave();
  ASSERT_TRUE(ranks_.PollUntil([&] { return !second().sink.ends.empty() && second().HasCompleted(2); }));
  EXPECT_EQ(arrived, 1u);
  EXPECT_TRUE(room == data);
  EXPECT_FALSE(second()->CanSendEarly(0));
  second()->PostSend(0, EarlyTag(4), 0, data.data(), data.size(), 4);
  second()->PostReceive(0, EarlyTag(4), 0, never.data(), never.size(), 5);
  second()->PostGoodbye(0, 1);
  for (int i = 0; i < 100; ++i) ranks_.Poll();
  ASSERT_EQ(second().sink.ends.size(), 1u);
  EXPECT_EQ(second().sink.ends[0].first, 0);
  EXPECT_EQ(second().sink.ends[0].second.code(), Code::kPeerLost);
  EXPECT_NE(second().sink.ends[0].second.message().find("rank 0"), std::string::npos);
  EXPECT_FALSE(second().HasCompleted(3));
  EXPECT_TRUE(second().HasCompleted(4)) << "what cannot be sent any more counts as sent";
  for (const auto& each : second().completions) EXPECT_TRUE(each.status.ok()) << "posts of this lane never fail";
}

// What arrived before the end is not lost with the connection.
TEST_P(EarlySuite, WhatThePeerSentBeforeItsEndCanStillBeReceived) {
  const std::vector<uint8_t> data = BytesOfMessage(1, 40'000);
  std::vector<uint8_t> room(data.size());
  first()->PostSend(1, EarlyTag(1), 0, data.data(), data.size(), 1);
  ASSERT_TRUE(ranks_.PollUntil([&] { return first().HasCompleted(1); }));
  first().Leave();
  ASSERT_TRUE(ranks_.PollUntil([&] { return !second().sink.ends.empty(); }));
  second()->PostReceive(0, EarlyTag(1), 0, room.data(), room.size(), 2);
  ASSERT_TRUE(ranks_.PollUntil([&] { return second().HasCompleted(2); }));
  EXPECT_EQ(room, data);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EarlySuite, ::testing::ValuesIn(kBothLanes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace farandole::tests
