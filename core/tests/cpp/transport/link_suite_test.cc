// The behaviour that every Link must have, tested over every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "transport/link_pairs.h"

namespace farandole::tests {
namespace {

constexpr std::chrono::seconds kLimit{60};

// Byte i of the stream that `sender` sends.
uint8_t StreamByte(int sender, uint64_t i) { return static_cast<uint8_t>((i * 2654435761u >> 11) + sender * 101 + i); }

// 1 byte to about 3 MB, small sizes as likely as big ones. Both threads draw the same sizes from one seed.
std::vector<size_t> RandomSizes(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<size_t> sizes(count);
  for (size_t& size : sizes) size = 1 + random() % (size_t{1} << (random() % 22));
  return sizes;
}

std::string SendAll(Link* link, const void* data, size_t size, const TimeLimit& limit) {
  for (size_t sent = 0, moved = 0; sent < size; sent += moved) {
    const Status status = link->TrySend(static_cast<const char*>(data) + sent, size - sent, &moved);
    if (!status.ok()) return status.message();
    if (limit.passed()) return "time limit passed while sending";
    if (moved == 0) std::this_thread::yield();
  }
  return "";
}

std::string RecvAll(Link* link, void* data, size_t size, const TimeLimit& limit) {
  for (size_t received = 0, moved = 0; received < size; received += moved) {
    const Status status = link->TryRecv(static_cast<char*>(data) + received, size - received, &moved);
    if (!status.ok()) return status.message();
    if (limit.passed()) return "time limit passed while receiving";
    if (moved == 0) std::this_thread::yield();
  }
  return "";
}

// Sends the stream of `me` cut by one sequence of sizes while it receives the peer's stream cut by another.
class Exchanger {
 public:
  Exchanger(Link* link, int me) : link_(link), me_(me) {}

  std::string Run(const std::vector<size_t>& send_sizes, const std::vector<size_t>& recv_sizes) {
    const TimeLimit limit(kLimit);
    size_t next_send = 0, next_recv = 0;
    while (next_send < send_sizes.size() || next_recv < recv_sizes.size()) {
      bool moved = false;
      std::string error;
      if (next_send < send_sizes.size()) next_send += Send(send_sizes[next_send], &moved, &error);
      if (next_recv < recv_sizes.size()) next_recv += Recv(recv_sizes[next_recv], &moved, &error);
      if (!error.empty()) return error;
      if (limit.passed()) return "time limit passed";
      if (!moved) std::this_thread::yield();
    }
    return "";
  }

 private:
  bool Send(size_t size, bool* moved, std::string* error) {
    if (send_buffer_.empty()) {
      send_buffer_.resize(size);
      for (size_t i = 0; i < size; ++i) send_buffer_[i] = StreamByte(me_, sent_before_ + i);
    }
    size_t step = 0;
    const Status status = link_->TrySend(send_buffer_.data() + sent_, size - sent_, &step);
    if (!status.ok()) *error = status.message();
    *moved |= step > 0;
    sent_ += step;
    if (sent_ < size) return false;
    sent_before_ += size;
    sent_ = 0;
    send_buffer_.clear();
    return true;
  }

  bool Recv(size_t size, bool* moved, std::string* error) {
    recv_buffer_.resize(size);
    size_t step = 0;
    const Status status = link_->TryRecv(recv_buffer_.data() + received_, size - received_, &step);
    if (!status.ok()) *error = status.message();
    *moved |= step > 0;
    received_ += step;
    if (received_ < size) return false;
    for (size_t i = 0; i < size && error->empty(); ++i) {
      if (recv_buffer_[i] != StreamByte(1 - me_, received_before_ + i))
        *error = "byte " + std::to_string(i) + " is wrong";
    }
    received_before_ += size;
    received_ = 0;
    return true;
  }

  Link* const link_;
  const int me_;
  std::vector<uint8_t> send_buffer_, recv_buffer_;
  size_t sent_ = 0, received_ = 0;
  uint64_t sent_before_ = 0, received_before_ = 0;
};

class LinkSuite : public ::testing::TestWithParam<Transport> {
 protected:
  LinkPair pair_ = GetParam().make();
};

TEST_P(LinkSuite, BytesArriveCompleteAndInOrderBothWaysAtOnce) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::vector<size_t> forward = RandomSizes(seed, 60), backward = RandomSizes(seed + 100, 60);
    std::string peer_error;
    std::thread peer([&] { peer_error = Exchanger(pair_.second.get(), 1).Run(backward, forward); });
    EXPECT_EQ(Exchanger(pair_.first.get(), 0).Run(forward, backward), "");
    peer.join();
    EXPECT_EQ(peer_error, "");
  }
}

TEST_P(LinkSuite, ReceivesMayBeCutOtherwiseThanSends) {
  const size_t total = 300000;
  std::vector<uint8_t> sent(total), received(total);
  for (size_t i = 0; i < total; ++i) sent[i] = StreamByte(0, i);
  std::string error;
  std::thread peer([&] { error = SendAll(pair_.second.get(), sent.data(), total, TimeLimit(kLimit)); });
  std::mt19937 random(7);
  for (size_t at = 0; at < total;) {
    const size_t size = std::min<size_t>(total - at, 1 + random() % 700);
    ASSERT_EQ(RecvAll(pair_.first.get(), received.data() + at, size, TimeLimit(kLimit)), "");
    at += size;
  }
  peer.join();
  EXPECT_EQ(error, "");
  EXPECT_EQ(received, sent);
}

TEST_P(LinkSuite, AFullLinkMovesPartOfASendAndThenNothing) {
  const std::vector<char> data(64 << 20, 'x');
  size_t total = 0, moved = 1;
  const TimeLimit limit(kLimit);
  while (moved > 0 && !limit.passed()) {
    ASSERT_TRUE(pair_.first->TrySend(data.data() + total, data.size() - total, &moved).ok());
    total += moved;
  }
  EXPECT_GT(total, 0u);
  EXPECT_LT(total, data.size());
}

TEST_P(LinkSuite, ReceivingFromASilentPeerMovesNothing) {
  char byte = 0;
  size_t moved = 7;
  EXPECT_TRUE(pair_.first->TryRecv(&byte, 1, &moved).ok());
  EXPECT_EQ(moved, 0u);
}

TEST_P(LinkSuite, ClosingIsSeenOnlyAfterAllBytesWereDelivered) {
  const size_t total = 2000000;
  std::vector<uint8_t> sent(total), received(total);
  for (size_t i = 0; i < total; ++i) sent[i] = StreamByte(1, i);
  std::string error;
  std::thread peer([&] {
    error = SendAll(pair_.second.get(), sent.data(), total, TimeLimit(kLimit));
    pair_.second.reset();
  });
  EXPECT_EQ(RecvAll(pair_.first.get(), received.data(), total, TimeLimit(kLimit)), "");
  peer.join();
  EXPECT_EQ(error, "");
  EXPECT_EQ(received, sent);
  char byte;
  size_t moved = 1;
  EXPECT_EQ(pair_.first->TryRecv(&byte, 1, &moved).code(), Code::kPeerLost);
  EXPECT_EQ(moved, 0u);
}

TEST_P(LinkSuite, PeerLostIsFinalAndNamesThePeer) {
  pair_.second.reset();
  char byte;
  size_t moved;
  for (int i = 0; i < 3; ++i) {
    const Status status = pair_.first->TryRecv(&byte, 1, &moved);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  }
}

TEST_P(LinkSuite, SendingToAClosedPeerEndsInPeerLost) {
  pair_.first.reset();
  const std::vector<char> data(1 << 20, 'x');
  const TimeLimit limit(kLimit);
  Status status;
  size_t moved;
  while (status.ok() && !limit.passed()) status = pair_.second->TrySend(data.data(), data.size(), &moved);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(moved, 0u);
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(Transports, LinkSuite, ::testing::ValuesIn(kTransports),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace farandole::tests
