// Two ranks that run an operation in different ways are told so, whatever the order of their posts.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "transport/raw_peers.h"

namespace farandole::tests {
namespace {

constexpr size_t kRoomBytes = 4096;

// One of the things that must be equal on both ends.
struct Difference {
  const char* what;
  MessageTag tag;
  uint32_t part;
  size_t size_bytes;
};

MessageTag TagOn(Lane lane) {
  MessageTag tag = EarlyTag(3, 5);
  tag.lane = lane;
  return tag;
}

std::vector<Difference> DifferencesOn(Lane lane) {
  std::vector<Difference> all(6, Difference{"", TagOn(lane), 2, 100});
  const auto differ = [&all](size_t i, const char* what) {
    all[i].what = what;
    return &all[i];
  };
  differ(0, "plan")->tag.plan = 78;
  differ(1, "size")->size_bytes = 101;
  if (lane == Lane::kEarly) all.resize(2);  // the others say which message it is
  if (lane == Lane::kEarly) return all;
  differ(2, "part")->part = 1;
  differ(3, "id")->tag.id = 4;
  differ(4, "operation")->tag.operation = 6;
  differ(5, "channel")->tag.channel = 1;
  return all;
}

void ExpectBothSides(const NotingSink& sink, const Difference& theirs, Lane lane) {
  ASSERT_EQ(sink.mismatches.size(), 1u) << theirs.what;
  const Mismatch& mismatch = sink.mismatches[0];
  EXPECT_EQ(mismatch.theirs.tag.plan, theirs.tag.plan);
  EXPECT_EQ(mismatch.theirs.tag.id, theirs.tag.id);
  EXPECT_EQ(mismatch.theirs.tag.operation, theirs.tag.operation);
  EXPECT_EQ(mismatch.theirs.tag.channel, theirs.tag.channel);
  EXPECT_EQ(mismatch.theirs.part, theirs.part);
  EXPECT_EQ(mismatch.theirs.size_bytes, theirs.size_bytes);
  EXPECT_EQ(mismatch.ours.tag.plan, TagOn(lane).plan);
  EXPECT_EQ(mismatch.ours.tag.operation, TagOn(lane).operation);
  EXPECT_EQ(mismatch.ours.part, 2u);
  EXPECT_EQ(mismatch.ours.size_bytes, 100u);
}

class MismatchOf : public ::testing::TestWithParam<Lane> {};
INSTANTIATE_TEST_SUITE_P(Lanes, MismatchOf, ::testing::Values(Lane::kOrdered, Lane::kEarly), [](const auto& info) {
  return info.param == Lane::kOrdered ? std::string("ordered") : std::string("early");
});

TEST_P(MismatchOf, AMessageAndItsReceiveIsReportedWithBothSides) {
  const Lane lane = GetParam();
  for (const Difference& theirs : DifferencesOn(lane)) {
    for (bool receives_first : {true, false}) {
      std::vector<uint8_t> room(kRoomBytes), data(kRoomBytes);
      DrivenRanks ranks(BothLanes(2, UnixPair));
      const auto receive = [&] { ranks[1]->PostReceive(0, TagOn(lane), 2, room.data(), 100, 1); };
      if (receives_first) receive();
      ranks[0]->PostSend(1, theirs.tag, theirs.part, data.data(), theirs.size_bytes, 2);
      ASSERT_TRUE(ranks.PollUntil([&] { return ranks[0].HasCompleted(2); }));
      for (int i = 0; i < 5; ++i) ranks.Poll();
      if (!receives_first) receive();
      for (int i = 0; i < 5; ++i) ranks.Poll();
      ExpectBothSides(ranks[1].sink, theirs, lane);
      EXPECT_FALSE(ranks[1].HasCompleted(1)) << theirs.what;
    }
  }
}

TEST_P(MismatchOf, AMessageAndItsReceiveIsNoneIfTheyAgree) {
  std::vector<uint8_t> room(100), data(100, 5);
  DrivenRanks ranks(BothLanes(2, UnixPair));
  ranks[0]->PostSend(1, TagOn(GetParam()), 2, data.data(), 100, 2);
  for (int i = 0; i < 5; ++i) ranks.Poll();
  ranks[1]->PostReceive(0, TagOn(GetParam()), 2, room.data(), 100, 1);
  ASSERT_TRUE(ranks.PollUntil([&] { return ranks[1].HasCompleted(1); }));
  EXPECT_TRUE(ranks[1].sink.mismatches.empty());
  EXPECT_EQ(room, data);
}

// ---- the early lane

// Not a byte of the payload is copied, whose size is not the receive's.
TEST(EarlyMismatch, IsReportedAlsoWhileTheMessageIsArriving) {
  for (size_t ours : {size_t{10}, kRoomBytes}) {
    RankAmongRawPeers rank;
    std::vector<uint8_t> room(ours);
    const FrameHeader header = MakeHeader(FrameKind::kData, TagOn(Lane::kEarly), 2, 101);
    rank.SendBytes(1, Lane::kEarly, &header, sizeof header);
    rank.PollAWhile();
    rank->PostReceive(1, TagOn(Lane::kEarly), 2, room.data(), room.size(), 1);
    rank.SendBytes(1, Lane::kEarly, std::vector<char>(101).data(), 101);
    rank.PollAWhile();
    ASSERT_EQ(rank.sink().mismatches.size(), 1u);
    EXPECT_EQ(rank.sink().mismatches[0].theirs.size_bytes, 101u);
    EXPECT_EQ(rank.sink().mismatches[0].ours.size_bytes, ours);
    EXPECT_FALSE(rank.rank->HasCompleted(1));
  }
}

// The receive is over, although the peer seems to mean the same now.
TEST(EarlyMismatch, IsFinal) {
  RankAmongRawPeers rank;
  std::vector<uint8_t> room(100, 0xcd);
  rank.SendFrame(1, MakeHeader(FrameKind::kData, TagOn(Lane::kEarly), 2, 10));
  rank->PostReceive(1, TagOn(Lane::kEarly), 2, room.data(), room.size(), 1);
  ASSERT_EQ(rank.sink().mismatches.size(), 1u);
  for (FrameKind kind : {FrameKind::kAnnounced, FrameKind::kGranted})
    rank.SendFrame(1, MakeHeader(kind, TagOn(Lane::kEarly), 2, room.size()));
  rank.PollAWhile();
  EXPECT_FALSE(rank.rank->HasCompleted(1));
  EXPECT_EQ(room, std::vector<uint8_t>(100, 0xcd));
}

TEST(EarlyMismatch, IsReportedForAMessageThatIsOnlyAnnounced) {
  for (bool receives_first : {true, false}) {
    RankAmongRawPeers rank;
    std::vector<uint8_t> room(100);
    const auto receive = [&] { rank->PostReceive(1, TagOn(Lane::kEarly), 2, room.data(), room.size(), 1); };
    if (receives_first) receive();
    rank.SendFrame(1, MakeHeader(FrameKind::kAnnounced, TagOn(Lane::kEarly), 2, 101));
    rank.PollAWhile();
    if (!receives_first) receive();
    rank.PollAWhile();
    ASSERT_EQ(rank.sink().mismatches.size(), 1u);
    EXPECT_EQ(rank.sink().mismatches[0].theirs.size_bytes, 101u);
  }
}

// ---- an operation for which this rank posts no receive

struct BegunCase {
  const char* what;
  uint64_t operation;
  uint32_t plan;
  int32_t set;
  bool is_mismatch;
};

constexpr uint64_t kBegun = 5;
constexpr uint32_t kPlan = 77;
constexpr BegunCase kBegunCases[] = {
    {"the same", kBegun, kPlan, 0, false},
    {"another plan", kBegun, kPlan + 1, 0, true},
    {"an operation that is over here", kBegun - 1, kPlan, 0, true},
    {"a later operation", kBegun + 1, kPlan + 1, 0, false},
    {"another process set", kBegun, kPlan + 1, 1, false},
    {"a step of another operation", 0, kPlan + 1, 0, false},
};

MessageTag OrderedTag(int32_t set, uint64_t operation, uint32_t plan) {
  MessageTag tag;
  tag.id = set;
  tag.operation = operation;
  tag.plan = plan;
  return tag;
}

TEST(BegunOperation, AMessageOfAnotherPlanIsReportedWithoutAPostedReceive) {
  for (const BegunCase& each : kBegunCases) {
    for (bool begins_first : {true, false}) {
      DrivenRanks ranks(BothLanes(2, UnixPair));
      const auto begin = [&] { ranks[1]->Begin(OrderedTag(0, kBegun, kPlan)); };
      if (begins_first) begin();
      ranks[0]->PostSend(1, OrderedTag(each.set, each.operation, each.plan), 0, "x", 1, 1);
      ASSERT_TRUE(ranks.PollUntil([&] { return ranks[0].HasCompleted(1); }));
      for (int i = 0; i < 5; ++i) ranks.Poll();
      EXPECT_TRUE(begins_first || ranks[1].sink.mismatches.empty()) << each.what;
      if (!begins_first) begin();
      for (int i = 0; i < 5; ++i) ranks.Poll();
      EXPECT_EQ(!ranks[1].sink.mismatches.empty(), each.is_mismatch) << each.what << (begins_first ? "" : ", late");
      if (!each.is_mismatch || ranks[1].sink.mismatches.empty()) continue;
      EXPECT_EQ(ranks[1].sink.mismatches[0].theirs.tag.plan, each.plan);
      EXPECT_EQ(ranks[1].sink.mismatches[0].theirs.tag.operation, each.operation);
      EXPECT_EQ(ranks[1].sink.mismatches[0].ours.tag.plan, kPlan);
      EXPECT_EQ(ranks[1].sink.mismatches[0].ours.tag.operation, kBegun);
    }
  }
}

TEST(BegunOperation, IsForgottenWithItsProcessSet) {
  for (int32_t forgotten : {0, 1}) {
    DrivenRanks ranks(BothLanes(2, UnixPair));
    ranks[1]->Begin(OrderedTag(0, kBegun, kPlan));
    ranks[1]->ForgetSet(forgotten);
    ranks[0]->PostSend(1, OrderedTag(0, kBegun, kPlan + 1), 0, "x", 1, 1);
    ASSERT_TRUE(ranks.PollUntil([&] { return ranks[0].HasCompleted(1); }));
    for (int i = 0; i < 5; ++i) ranks.Poll();
    EXPECT_EQ(ranks[1].sink.mismatches.empty(), forgotten == 0);
  }
}

// The peer is ahead: its message waits until this rank gets there.
TEST(BegunOperation, ALaterOperationIsReportedOnlyOnceThisRankBeginsItOtherwise) {
  for (uint32_t plan : {kPlan, kPlan + 1}) {
    DrivenRanks ranks(BothLanes(2, UnixPair));
    ranks[0]->PostSend(1, OrderedTag(0, 7, kPlan), 0, "x", 1, 1);
    ASSERT_TRUE(ranks.PollUntil([&] { return ranks[0].HasCompleted(1); }));
    for (uint64_t operation = 5; operation < 7; ++operation) {
      ranks[1]->Begin(OrderedTag(0, operation, kPlan + 2));
      for (int i = 0; i < 5; ++i) ranks.Poll();
      EXPECT_TRUE(ranks[1].sink.mismatches.empty());
    }
    ranks[1]->Begin(OrderedTag(0, 7, plan));
    EXPECT_EQ(ranks[1].sink.mismatches.empty(), plan == kPlan);
    if (plan != kPlan) continue;
    char byte = 0;
    ranks[1]->PostReceive(0, OrderedTag(0, 7, kPlan), 0, &byte, 1, 2);
    EXPECT_TRUE(ranks.PollUntil([&] { return ranks[1].HasCompleted(2); }));
    EXPECT_EQ(byte, 'x');
  }
}

}  // namespace
}  // namespace farandole::tests
