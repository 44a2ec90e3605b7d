#include "transport/message_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/transports.h"

namespace farandole::tests {
namespace {

struct MessagePair {
  MessagePair() {
    auto [first, second] = UnixPair();
    near = MessageStream(std::move(first));
    far = MessageStream(std::move(second));
  }
  MessageStream near, far;
};

TEST(MessageStream, MessagesOfAnySizeComeInOrder) {
  MessagePair pair;
  std::vector<Bytes> sent, received;
  for (size_t size_bytes : {size_t{1}, size_t{63}, size_t{9000}, size_t{3} << 20, size_t{2}})
    sent.push_back(Bytes(size_bytes, static_cast<uint8_t>(size_bytes)));
  for (const Bytes& each : sent) pair.near.Queue(each);
  EXPECT_GT(pair.near.unsent_bytes(), size_t{3} << 20);
  while (!pair.near.flushed()) {
    ASSERT_TRUE(pair.near.Flush().ok());
    ASSERT_TRUE(pair.far.Receive(&received).ok());
  }
  ASSERT_TRUE(pair.far.Receive(&received).ok());
  EXPECT_EQ(pair.near.unsent_bytes(), 0u);
  EXPECT_EQ(received, sent);
}

TEST(MessageStream, OneMessageLeavesTheNextOneToPoll) {
  MessagePair pair;
  for (uint8_t each : {1, 2, 3}) pair.near.Queue({each});
  ASSERT_TRUE(pair.near.Flush().ok());
  for (uint8_t each : {1, 2}) {
    std::vector<Bytes> one;
    ASSERT_TRUE(pair.far.ReceiveOne(&one).ok());
    EXPECT_EQ(one, std::vector<Bytes>({{each}}));
    pollfd ready{pair.far.descriptor(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 0), 1);
  }
  std::vector<Bytes> rest;
  MessageStream moved = std::move(pair.far);
  ASSERT_TRUE(moved.Receive(&rest).ok());
  EXPECT_EQ(rest, std::vector<Bytes>({{3}}));
}

TEST(MessageStream, TheLastMessagesComeBeforeTheEnd) {
  MessagePair pair;
  for (uint8_t each : {1, 2}) pair.near.Queue({each});
  pair.near.EndSending();
  std::vector<Bytes> one, rest;
  EXPECT_TRUE(pair.far.ReceiveOne(&one).ok());
  EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(pair.far.Receive(&rest).code(), Code::kPeerLost);
  EXPECT_EQ(rest.size(), 1u);
}

TEST(MessageStream, RefusesWhatIsNoControlMessage) {
  for (bool is_long : {true, false}) {
    MessagePair pair;
    FrameHeader header;
    header.kind = is_long ? FrameKind::kControl : FrameKind::kData;
    header.size_bytes = is_long ? uint64_t{kMessageLimitBytes} + 1 : 1;
    ASSERT_EQ(send(pair.near.descriptor(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
    std::vector<Bytes> none;
    EXPECT_FALSE(pair.far.Receive(&none).ok());
    EXPECT_TRUE(none.empty());
  }
}

}  // namespace
}  // namespace farandole::tests
