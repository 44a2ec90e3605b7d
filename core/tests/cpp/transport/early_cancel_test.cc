// What nobody receives on the early lane of any Transport: it is dropped or cancelled, and its memory is the user's
// again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "transport/both_lanes.h"

namespace farandole::tests {
namespace {

constexpr size_t kUnreceivedBytes = 600'000;

class EarlyCancel : public ::testing::TestWithParam<TransportKind> {
 protected:
  DrivenRanks ranks_{GetParam().make(2)};
  DrivenRank& first() { return ranks_[0]; }
  DrivenRank& second() { return ranks_[1]; }
};

// ---- what nobody wants

TEST_P(EarlyCancel, UnwantedMessagesAreDroppedAndNeverDelivered) {
  second().sink.wants = [](const MessageTag& tag) { return tag.serial != 1; };
  const std::vector<uint8_t> data = BytesOfMessage(1, kUnreceivedBytes);
  std::vector<uint8_t> room(kUnreceivedBytes), wanted(kUnreceivedBytes);
  for (uint32_t part = 0; part < 2; ++part) {
    first()->PostSend(1, EarlyTag(1), part, data.data(), data.size(), 1);
    first()->PostSend(1, EarlyTag(2), part, data.data(), data.size(), 2);
  }
  ASSERT_TRUE(ranks_.PollUntil([&] { return first().completions.size() >= 2 && second().sink.arrivals.size() == 4; }));
  for (uint32_t part = 0; part < 2; ++part) {
    second()->PostReceive(0, EarlyTag(2), part, wanted.data(), wanted.size(), 10 + part);
    ASSERT_TRUE(ranks_.PollUntil([&] { return second().HasCompleted(10 + part); }));
    EXPECT_TRUE(wanted == data);
  }
  ASSERT_TRUE(ranks_.ExchangeLast(0, 1, 50));
  second()->PostReceive(0, EarlyTag(1), 1, room.data(), room.size(), 20);
  ASSERT_TRUE(ranks_.ExchangeLast(0, 1, 51));
  for (int i = 0; i < 50; ++i) ranks_.Poll();
  EXPECT_FALSE(second().HasCompleted(20));
}

TEST_P(EarlyCancel, DroppedMessagesAreNotDeliveredWhetherTheyHaveArrivedOrNot) {
  const std::vector<uint8_t> data = BytesOfMessage(1, kUnreceivedBytes);
  std::vector<uint8_t> room(kUnreceivedBytes);
  for (int polls = 0; polls < 5; ++polls) {
    const auto serial = static_cast<uint32_t>(polls + 1);
    const auto before = second().sink.arrivals.size();
    first()->PostSend(1, EarlyTag(serial), 0, data.data(), data.size(), serial);
    ASSERT_TRUE(ranks_.PollUntil([&] { return second().sink.arrivals.size() > before; }));
    for (int i = 0; i < polls; ++i) ranks_.Poll();
    second()->DropEarly(serial);
    ASSERT_TRUE(ranks_.PollUntil([&] { return first().HasCompleted(serial); }));
    ASSERT_TRUE(ranks_.ExchangeLast(0, 1, 50 + serial));
    second()->PostReceive(0, EarlyTag(serial), 0, room.data(), room.size(), 100 + serial);
    ASSERT_TRUE(ranks_.ExchangeLast(0, 1, 80 + serial));
    EXPECT_FALSE(second().HasCompleted(100 + serial));
  }
}

// ---- Cancel

// The receiver cancels before the data arrive, while they do, and after that; it has told nobody, so they keep coming.
TEST_P(EarlyCancel, ACancelledReceiveNeitherCompletesNorTouchesItsMemory) {
  const std::vector<uint8_t> data = BytesOfMessage(1, kUnreceivedBytes);
  int completed = 0, cancelled = 0;
  for (int polls : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 1024}) {
    DrivenRanks ranks(GetParam().make(2));
    auto room = std::make_unique<std::vector<uint8_t>>(kUnreceivedBytes);
    ranks[1]->PostReceive(0, EarlyTag(1), 0, room->data(), room->size(), 1);
    ranks[0]->PostSend(1, EarlyTag(1), 0, data.data(), data.size(), 2);
    ranks[0]->PostSend(1, EarlyTag(1), 1, data.data(), data.size(), 3);
    for (int i = 0; i < polls; ++i) ranks[i % 2].Poll();
    const bool was_complete = ranks[1].HasCompleted(1);
    ranks[1]->Cancel(EarlyTag(1));
    const std::vector<uint8_t> poison(kUnreceivedBytes, 0xcd);
    *room = poison;
    ASSERT_TRUE(ranks.ExchangeLast(0, 1, 50));
    EXPECT_TRUE(*room == poison) << "after " << polls << " polls";
    EXPECT_EQ(ranks[1].HasCompleted(1), was_complete) << "after " << polls << " polls";
    ++(was_complete ? completed : cancelled);
  }
  EXPECT_GT(completed, 0);
  EXPECT_GT(cancelled, 0);
}

// The payload is here and is copied when the receive is posted, so only the completion is left to cancel.
TEST_P(EarlyCancel, AReceiveThatIsCancelledBeforeTheNextPollDoesNotComplete) {
  std::vector<uint8_t> data = BytesOfMessage(1, 1000), room(data.size());
  first()->PostSend(1, EarlyTag(1), 0, data.data(), data.size(), 1);
  ASSERT_TRUE(ranks_.PollUntil([&] { return !second().sink.arrivals.empty(); }));
  second()->PostReceive(0, EarlyTag(1), 0, room.data(), room.size(), 2);
  second()->Cancel(EarlyTag(1));
  ASSERT_TRUE(ranks_.ExchangeLast(0, 1, 50));
  EXPECT_FALSE(second().HasCompleted(2));
}

// Its peer needs the data although this rank gives up.
TEST_P(EarlyCancel, ACancelledSendStillArrivesAndItsMemoryIsNotRead) {
  for (int polls = 0; polls < 6; ++polls) {
    DrivenRanks ranks(GetParam().make(2));
    auto data = std::make_unique<std::vector<uint8_t>>(BytesOfMessage(1, kUnreceivedBytes));
    std::vector<uint8_t> room(kUnreceivedBytes);
    ranks[0]->PostSend(1, EarlyTag(1), 0, data->data(), data->size(), 1);
    for (int i = 0; i < polls; ++i) ranks[i % 2].Poll();
    const bool was_complete = ranks[0].HasCompleted(1);
    ranks[0]->Cancel(EarlyTag(1));
    std::fill(data->begin(), data->end(), uint8_t{0xcd});
    data.reset();
    ranks[1]->PostReceive(0, EarlyTag(1), 0, room.data(), room.size(), 2);
    ASSERT_TRUE(ranks.PollUntil([&] { return ranks[1].HasCompleted(2); }));
    EXPECT_TRUE(room == BytesOfMessage(1, kUnreceivedBytes));
    EXPECT_EQ(ranks[0].HasCompleted(1), was_complete);
  }
}

TEST_P(EarlyCancel, CancelEndsOneOperationOnly) {
  std::vector<uint8_t> data = BytesOfMessage(1, 1000), room(data.size()), other(data.size());
  second()->PostReceive(0, EarlyTag(1, 1), 0, room.data(), room.size(), 1);
  second()->PostReceive(0, EarlyTag(1, 2), 0, other.data(), other.size(), 2);
  second()->Cancel(EarlyTag(1, 1));
  first()->PostSend(1, EarlyTag(1, 1), 0, data.data(), data.size(), 3);
  first()->PostSend(1, EarlyTag(1, 2), 0, data.data(), data.size(), 4);
  ASSERT_TRUE(ranks_.PollUntil([&] { return second().HasCompleted(2); }));
  EXPECT_EQ(other, data);
  EXPECT_FALSE(second().HasCompleted(1));
}

// ---- the end

TEST_P(EarlyCancel, OnceItIsQuietNoEarlyPostTouchesMemory) {
  const std::vector<uint8_t> data = BytesOfMessage(1, kUnreceivedBytes);
  for (int polls = 0; polls < 8; ++polls) {
    DrivenRanks ranks(GetParam().make(2));
    std::vector<uint8_t> room(kUnreceivedBytes);
    ranks[1]->PostReceive(0, EarlyTag(1), 0, room.data(), room.size(), 1);
    for (uint32_t i = 1; i <= 2; ++i) ranks[0]->PostSend(1, EarlyTag(i), 0, data.data(), data.size(), i);
    for (int i = 0; i < polls; ++i) ranks[i % 2].Poll();
    const size_t before = ranks[1].completions.size();
    ranks[1]->BeginQuiesce();
    ASSERT_TRUE(ranks.PollUntil([&] { return ranks[1]->is_quiet(); }));
    std::fill(room.begin(), room.end(), uint8_t{0xcd});
    ranks[1]->PostReceive(0, EarlyTag(2), 0, room.data(), room.size(), 3);  // too late
    for (int i = 0; i < 100; ++i) ranks.Poll();
    EXPECT_EQ(ranks[1].completions.size(), before) << "what is cancelled does not complete";
    EXPECT_TRUE(std::all_of(room.begin(), room.end(), [](uint8_t each) { return each == 0xcd; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EarlyCancel, ::testing::ValuesIn(kBothLanes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace farandole::tests
