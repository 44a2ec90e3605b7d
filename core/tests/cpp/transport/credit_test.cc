// The credit of the early lane over sockets: nothing waits for ever, and a rank keeps no more than it has promised.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "transport/raw_peers.h"

namespace farandole::tests {
namespace {

// What each of `peers` peers may send before it is taken.
size_t CreditOf(int peers) { return Transport::kEarlyBytes / static_cast<size_t>(peers); }

struct BeyondCredit {
  int from, to;
  std::vector<uint8_t> sent, received;
};

// From each rank to each other one, three times the credit of that lane.
std::vector<BeyondCredit> MessagesBeyondCredit(int ranks, std::mt19937* random) {
  std::vector<BeyondCredit> messages;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      for (size_t left = from == to ? 0 : 3 * CreditOf(ranks - 1); left > 0;) {
        const size_t size_bytes = std::min<size_t>(left, 1 + (*random)() % 600'000);
        messages.push_back({from, to, BytesOfMessage(messages.size(), size_bytes), std::vector<uint8_t>(size_bytes)});
        left -= size_bytes;
      }
    }
  }
  return messages;
}

// The order of each rank's receives has nothing to do with the order of sends, and one follows the other.
TEST(EarlyCredit, MoreThanTheCreditInAnotherOrderComesToAnEnd) {
  for (int peers = 1; peers <= 7; ++peers) {
    std::mt19937 random(static_cast<unsigned>(peers));
    DrivenRanks ranks(BothLanes(peers + 1, peers % 2 == 0 ? UnixPair : TcpPair));
    std::vector<BeyondCredit> messages = MessagesBeyondCredit(peers + 1, &random);
    const auto tag_of = [](size_t i) { return EarlyTag(static_cast<uint32_t>(i) + 1); };
    std::vector<size_t> order(messages.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i : order) {
      const BeyondCredit& each = messages[i];
      ranks[each.from]->PostSend(each.to, tag_of(i), 0, each.sent.data(), each.sent.size(), 2 * i);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i : order) {
      BeyondCredit& each = messages[i];
      ranks[each.to]->PostReceive(each.from, tag_of(i), 0, each.received.data(), each.received.size(), 2 * i + 1);
      ASSERT_TRUE(ranks.PollUntil([&] { return ranks[each.to].HasCompleted(2 * i + 1); })) << peers << " peers";
      ASSERT_TRUE(each.received == each.sent);
      ranks[each.to].completions.clear();
    }
    for (int rank = 0; rank <= peers; ++rank) EXPECT_TRUE(ranks[rank].sink.ends.empty());
  }
}

// A message completes without a posted receive as long as there is credit for it, so this sees whether it comes back.
TEST(EarlyCredit, ComesBackForWhatIsReceivedAndCopiedAndDropped) {
  DrivenRanks ranks(BothLanes(2, UnixPair));
  const std::vector<uint8_t> data = BytesOfMessage(1, 600'000);
  std::vector<uint8_t> room(data.size());
  enum { kReceived, kCopied, kUnwanted, kDropped, kCancelled, kWays };
  for (uint32_t i = 1; i <= 40; ++i) {
    const auto way = i % kWays;
    const size_t before = ranks[1].sink.arrivals.size();
    ranks[1].sink.wants = [=](const MessageTag&) { return way != kUnwanted; };
    if (way == kReceived) ranks[1]->PostReceive(0, EarlyTag(i), 0, room.data(), room.size(), i);
    ranks[0]->PostSend(1, EarlyTag(i), 0, data.data(), data.size(), i);
    ASSERT_TRUE(ranks.PollUntil([&] { return ranks[0].HasCompleted(i); })) << "message " << i << " had no credit";
    const auto is_here = [&] { return ranks[1].sink.arrivals.size() > before; };
    ASSERT_TRUE(way == kReceived || ranks.PollUntil(is_here));
    if (way == kCopied) ranks[1]->PostReceive(0, EarlyTag(i), 0, room.data(), room.size(), i);
    if (way == kDropped) ranks[1]->DropEarly(i);
    if (way == kCancelled) ranks[1]->Cancel(EarlyTag(i));
    ASSERT_TRUE(ranks.ExchangeLast(0, 1, 1000 + i));  // every message tells what has been taken
    ASSERT_EQ(ranks[1].HasCompleted(i), way == kReceived || way == kCopied);
    EXPECT_TRUE(!ranks[1].HasCompleted(i) || room == data);
  }
}

FrameHeader EarlyFrame(uint32_t serial, size_t size_bytes) {
  return MakeHeader(FrameKind::kData, EarlyTag(serial), 0, size_bytes);
}

void ExpectEndedByFault(const RankAmongRawPeers& rank, int peer) {
  const auto& ends = rank.sink().ends;
  const auto found = std::find_if(ends.begin(), ends.end(), [peer](const auto& each) { return each.first == peer; });
  ASSERT_NE(found, ends.end()) << "nothing was wrong with rank " << peer;
  EXPECT_FALSE(found->second.ok());
  EXPECT_NE(found->second.code(), Code::kPeerLost);
  EXPECT_FALSE(rank->CanSendEarly(peer));
}

// The credits of all peers together are Transport::kEarlyBytes at most, and none may send a byte beyond its own.
TEST(EarlyCredit, ARankKeepsNoMoreThanItMayForAllPeersTogether) {
  for (int peers = 1; peers <= 7; ++peers) {
    RankAmongRawPeers rank(peers);
    const size_t part_bytes = CreditOf(peers) / 4;
    for (int peer = 1; peer <= peers; ++peer) {
      for (uint32_t serial = 1; serial <= 4; ++serial)
        rank.SendFrame(peer, EarlyFrame(serial, serial < 4 ? part_bytes : CreditOf(peers) - 3 * part_bytes));
    }
    rank.PollAWhile();
    EXPECT_TRUE(rank.sink().ends.empty()) << peers << " peers";
    ASSERT_EQ(rank.sink().arrivals.size(), 4u * static_cast<size_t>(peers));
    for (int peer = 1; peer <= peers; ++peer) rank.SendFrame(peer, EarlyFrame(5, 1));
    rank.PollAWhile();
    for (int peer = 1; peer <= peers; ++peer) ExpectEndedByFault(rank, peer);
  }
}

TEST(EarlyCredit, WhatIsTakenMayBeSentAgain) {
  RankAmongRawPeers rank;
  const size_t half_bytes = CreditOf(1) / 2;
  std::vector<uint8_t> room(half_bytes);
  for (uint32_t serial = 1; serial <= 6; ++serial) {
    rank.SendFrame(1, EarlyFrame(serial, half_bytes));
    if (serial < 2) continue;
    rank->PostReceive(1, EarlyTag(serial - 1), 0, room.data(), room.size(), serial);
    rank.PollAWhile();
    EXPECT_TRUE(rank.rank->HasCompleted(serial));
  }
  EXPECT_TRUE(rank.sink().ends.empty());
  rank.SendFrame(1, EarlyFrame(7, half_bytes + 1));
  rank.PollAWhile();
  ExpectEndedByFault(rank, 1);
}

// Receives the next header that the rank has sent, if there is one.
bool NextHeaderTo(RankAmongRawPeers* rank, int peer, FrameHeader* header) {
  return recv(rank->SocketOf(peer, Lane::kEarly), header, sizeof *header, MSG_DONTWAIT) == sizeof *header;
}

// Nothing else is on its way to the peer that could tell.
TEST(EarlyCredit, ThePeerIsToldWhenHalfOfItWasTaken) {
  RankAmongRawPeers rank;
  const size_t quarter_bytes = CreditOf(1) / 4;
  std::vector<uint8_t> room(quarter_bytes);
  FrameHeader header;
  for (uint32_t serial = 1; serial <= 2; ++serial) {
    EXPECT_FALSE(NextHeaderTo(&rank, 1, &header));
    rank->PostReceive(1, EarlyTag(serial), 0, room.data(), room.size(), serial);
    rank.SendFrame(1, EarlyFrame(serial, quarter_bytes));
    rank.PollAWhile();
  }
  ASSERT_TRUE(NextHeaderTo(&rank, 1, &header));
  EXPECT_EQ(header.kind, FrameKind::kCredit);
  EXPECT_EQ(header.taken_bytes, 2 * quarter_bytes);
}

// The kernel has no news of this connection, and no post is waiting there.
TEST(EarlyCredit, ThePeerIsToldOfWhatIsCancelledAndDropped) {
  for (bool cancels : {true, false}) {
    RankAmongRawPeers rank;
    for (uint32_t part = 0; part < 2; ++part)
      rank.SendFrame(1, MakeHeader(FrameKind::kData, EarlyTag(1), part, CreditOf(1) / 2));
    rank.PollAWhile();
    FrameHeader header;
    EXPECT_FALSE(NextHeaderTo(&rank, 1, &header));
    cancels ? rank->Cancel(EarlyTag(1)) : rank->DropEarly(1);
    rank.PollAWhile();
    ASSERT_TRUE(NextHeaderTo(&rank, 1, &header));
    EXPECT_EQ(header.kind, FrameKind::kCredit);
  }
}

// What is granted is forgotten, so any number of messages may be announced one after the other.
TEST(EarlyCredit, AnnouncementsAreKeptUntilTheirReceiveIsPosted) {
  RankAmongRawPeers rank;
  uint8_t byte = 0;
  for (uint32_t serial = 1; serial <= 17'000; ++serial) {
    rank.SendFrame(1, MakeHeader(FrameKind::kAnnounced, EarlyTag(serial), 0, 1));
    rank->PostReceive(1, EarlyTag(serial), 0, &byte, 1, serial);
    rank.SendFrame(1, MakeHeader(FrameKind::kGranted, EarlyTag(serial), 0, 1));
    ASSERT_TRUE(rank.rank->HasCompleted(serial)) << serial;
    rank.rank->completions.clear();
    FrameHeader grant;
    ASSERT_TRUE(NextHeaderTo(&rank, 1, &grant) && grant.kind == FrameKind::kGrant) << serial;
    rank.sink().arrivals.clear();
  }
  EXPECT_TRUE(rank.sink().ends.empty());
}

// A peer cannot have taken what was not sent, nor give back what it has taken.
TEST(EarlyCredit, APeerThatTellsWhatCannotBeIsAnError) {
  for (uint64_t taken : {uint64_t{99}, uint64_t{101}, ~uint64_t{0}}) {
    RankAmongRawPeers rank;
    const std::vector<uint8_t> data(100);
    rank->PostSend(1, EarlyTag(1), 0, data.data(), data.size(), 1);
    FrameHeader credit = MakeHeader(FrameKind::kCredit, {}, 0, 0);
    if (taken < 100) credit.taken_bytes = 100;
    rank.SendFrame(1, credit);
    rank.PollAWhile();
    EXPECT_TRUE(rank.sink().ends.empty());
    credit.taken_bytes = taken;
    rank.SendFrame(1, credit);
    rank.PollAWhile();
    ExpectEndedByFault(rank, 1);
  }
}

TEST(EarlyCredit, AMessageThatIsHereAlreadyIsAnError) {
  RankAmongRawPeers rank;
  for (int i = 0; i < 2; ++i) rank.SendFrame(1, EarlyFrame(1, 10));
  rank.PollAWhile();
  ExpectEndedByFault(rank, 1);
}

// One call reads a part of it. The kernel has no news after that, so the transport has to remember that there is more.
TEST(EarlyCredit, ALongMessageIsReadToItsEndWithoutNewsFromTheKernel) {
  RankAmongRawPeers rank(1, 4 << 20);
  const size_t size_bytes = 700'000;
  std::vector<std::byte> bytes(2 * sizeof(FrameHeader) + size_bytes);
  const FrameHeader first = EarlyFrame(1, size_bytes), second = MakeHeader(FrameKind::kGoodbye, {}, 0, 0);
  std::memcpy(bytes.data(), &first, sizeof first);
  std::memcpy(bytes.data() + bytes.size() - sizeof second, &second, sizeof second);
  rank.SendBytes(1, Lane::kEarly, bytes.data(), bytes.size());
  for (int i = 0; i < 10; ++i) rank.rank->Poll();
  EXPECT_EQ(rank.sink().goodbyes.size(), 1u);
}

}  // namespace
}  // namespace farandole::tests
