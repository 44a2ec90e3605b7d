// The behaviour that every Transport must have, tested over each: posts, completions, and the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "support/transports.h"

namespace farandole::tests {
namespace {

// Byte i of post `number` of `sender`.
uint8_t ByteOf(int sender, size_t number, size_t i) {
  return static_cast<uint8_t>((i * 2654435761u >> 11) + static_cast<size_t>(sender) * 101 + number * 7 + i);
}

std::vector<uint8_t> DataOf(int sender, size_t number, size_t size_bytes) {
  std::vector<uint8_t> data(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) data[i] = ByteOf(sender, number, i);
  return data;
}

// 1 byte to about 2 MB, small sizes as likely as big ones. Both ends draw the same sizes from one seed.
std::vector<size_t> RandomSizes(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<size_t> sizes(count);
  for (size_t& size : sizes) size = 1 + random() % (size_t{1} << (random() % 22));
  return sizes;
}

// Polls until `done` or an error. Returns the error.
template <typename Done>
std::string PollUntil(Transport* transport, std::vector<Transport::Completion>* completions, Done done) {
  const TimeLimit limit(kLimit);
  while (!done()) {
    if (!transport->Poll(completions)) std::this_thread::yield();
    for (const auto& each : *completions) {
      if (!each.status.ok()) return each.status.message();
    }
    if (limit.passed()) return "time limit passed";
  }
  return "";
}

Status StatusOf(Transport* transport) {
  std::vector<Transport::Completion> completions;
  const TimeLimit limit(kLimit);
  while (completions.empty() && !limit.passed()) transport->Poll(&completions);
  return completions.empty() ? Internal("nothing completed") : completions[0].status;
}

constexpr uint32_t kChannels = 3;
constexpr uint64_t kSend = 1 << 20;

// One end posts sends and receives by turns, some ahead of what is complete. Even contexts are of receives.
std::string Exchange(Transport* transport, int me, const std::vector<size_t>& sent, const std::vector<size_t>& received,
                     uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<uint8_t>> out, in;
  for (size_t i = 0; i < sent.size(); ++i) out.push_back(DataOf(me, i, sent[i]));
  for (size_t size : received) in.emplace_back(size, uint8_t{0});
  std::vector<Transport::Completion> completions;
  size_t sends = 0, receives = 0;
  const auto ahead = [&] { return sends + receives - completions.size() > 20; };
  while (sends < out.size() || receives < in.size()) {
    if (sends < out.size() && random() % 2 == 0) {
      transport->PostSend(1 - me, OnChannel(sends % kChannels), 0, out[sends].data(), out[sends].size(), kSend + sends);
      ++sends;
    }
    if (receives < in.size() && random() % 2 == 0) {
      transport->PostReceive(1 - me, OnChannel(receives % kChannels), 0, in[receives].data(), in[receives].size(),
                             receives);
      ++receives;
    }
    const std::string error = PollUntil(transport, &completions, [&] { return !ahead(); });
    if (!error.empty()) return error;
  }
  const std::string error =
      PollUntil(transport, &completions, [&] { return completions.size() == out.size() + in.size(); });
  if (!error.empty()) return error;
  std::map<std::pair<bool, uint64_t>, uint64_t> last;  // by direction and channel
  for (const auto& each : completions) {
    const bool is_send = each.context >= kSend;
    const uint64_t number = each.context % kSend;
    const auto [found, is_first] = last.emplace(std::make_pair(is_send, number % kChannels), number);
    if (!is_first && number <= found->second) return "completions of a channel come in another order";
    found->second = number;
  }
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] != DataOf(1 - me, i, received[i])) return "post " + std::to_string(i) + " has wrong bytes";
  }
  return "";
}

class TransportSuite : public ::testing::TestWithParam<TransportKind> {
 protected:
  Transports pair_ = GetParam().make(2);
  Transport& first() { return *pair_[0]; }
  Transport& second() { return *pair_[1]; }
};

TEST_P(TransportSuite, PostsArriveCompleteAndInTheirOrderOnEachChannelBothWaysAtOnce) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::vector<size_t> forward = RandomSizes(seed, 90), backward = RandomSizes(seed + 100, 90);
    std::string peer_error;
    std::thread peer([&] { peer_error = Exchange(&second(), 1, backward, forward, seed + 7); });
    EXPECT_EQ(Exchange(&first(), 0, forward, backward, seed), "");
    peer.join();
    EXPECT_EQ(peer_error, "");
  }
}

TEST_P(TransportSuite, ASendThatThePeerDoesNotReceiveIsNotComplete) {
  const std::vector<char> data(64 << 20, 'x');
  std::vector<Transport::Completion> completions;
  first().PostSend(1, {}, 0, data.data(), data.size(), 1);
  for (int i = 0; i < 1000; ++i) first().Poll(&completions);
  EXPECT_TRUE(completions.empty());
}

TEST_P(TransportSuite, AReceiveFromASilentPeerIsNotComplete) {
  char byte = 0;
  std::vector<Transport::Completion> completions;
  first().PostReceive(1, {}, 0, &byte, 1, 1);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(first().Poll(&completions));
  EXPECT_TRUE(completions.empty());
}

TEST_P(TransportSuite, ClosingIsSeenOnlyAfterAllBytesWereDelivered) {
  const std::vector<uint8_t> sent = DataOf(1, 0, 2'000'000);
  std::vector<uint8_t> received(sent.size());
  std::string error;
  std::thread peer([&] {
    std::vector<Transport::Completion> completions;
    second().PostSend(0, {}, 0, sent.data(), sent.size(), 1);
    error = PollUntil(&second(), &completions, [&] { return !completions.empty(); });
    pair_[1].reset();
  });
  first().PostReceive(1, {}, 0, received.data(), received.size(), 1);
  EXPECT_TRUE(StatusOf(&first()).ok());
  peer.join();
  EXPECT_EQ(error, "");
  EXPECT_EQ(received, sent);
  first().PostReceive(1, {}, 0, received.data(), 1, 2);
  EXPECT_EQ(StatusOf(&first()).code(), Code::kPeerLost);
}

TEST_P(TransportSuite, PeerLostIsFinalAndNamesThePeer) {
  pair_[1].reset();
  char byte;
  for (uint64_t i = 0; i < 3; ++i) {
    first().PostReceive(1, {}, 0, &byte, 1, i);
    const Status status = StatusOf(&first());
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  }
}

TEST_P(TransportSuite, SendingToAClosedPeerEndsInPeerLost) {
  pair_[0].reset();
  const std::vector<char> data(64 << 20, 'x');
  second().PostSend(0, {}, 0, data.data(), data.size(), 1);
  const Status status = StatusOf(&second());
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
}

TEST_P(TransportSuite, AConnectionIsBrokenAlsoWhileDataStandUnread) {
  std::vector<Transport::Completion> completions;
  second().PostSend(0, {}, 0, "data", 4, 1);
  ASSERT_EQ(PollUntil(&second(), &completions, [&] { return !completions.empty(); }), "");
  EXPECT_FALSE(first().IsBroken(1)) << "data are no sign of an end";
  EXPECT_FALSE(first().IsBroken(0)) << "nothing is connected there";
  pair_[1].reset();
  EXPECT_TRUE(first().IsBroken(1));
}

TEST_P(TransportSuite, OnceItIsQuietNoPostTouchesMemory) {
  std::vector<uint8_t> room(1 << 20), more(1 << 20);
  const std::vector<uint8_t> data = DataOf(1, 0, room.size());
  std::vector<Transport::Completion> completions, peers;
  first().PostReceive(1, {}, 0, room.data(), room.size(), 1);
  first().PostReceive(1, OnChannel(1), 0, more.data(), more.size(), 2);
  for (int half = 0; half < 2; ++half)
    second().PostSend(0, OnChannel(static_cast<uint32_t>(half)), 0, data.data(), data.size(), 1);
  for (int i = 0; i < 3; ++i) {
    second().Poll(&peers);
    first().Poll(&completions);
  }
  const size_t before = completions.size();
  first().BeginQuiesce();
  const TimeLimit limit(kLimit);
  while (!first().is_quiet() && !limit.passed()) first().Poll(&completions);
  ASSERT_TRUE(first().is_quiet());
  std::fill(room.begin(), room.end(), uint8_t{0xcd});
  std::fill(more.begin(), more.end(), uint8_t{0xcd});
  first().PostReceive(1, OnChannel(2), 0, room.data(), room.size(), 3);  // too late
  for (int i = 0; i < 1000; ++i) {
    second().Poll(&peers);
    first().Poll(&completions);
  }
  EXPECT_EQ(completions.size(), before) << "what is cancelled does not complete";
  EXPECT_EQ(room, std::vector<uint8_t>(room.size(), 0xcd));
  EXPECT_EQ(more, std::vector<uint8_t>(more.size(), 0xcd));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransportSuite, ::testing::ValuesIn(kTransports),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace farandole::tests
