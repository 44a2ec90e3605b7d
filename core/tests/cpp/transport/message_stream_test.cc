#include "transport/message_stream.h"

#include <gtest/gtest.h>
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

TEST(MessageStream, WhatIsPutBackComesFirst) {
  MessagePair pair;
  for (uint8_t each : {1, 2}) pair.near.Queue({each});
  ASSERT_TRUE(pair.near.Flush().ok());
  std::vector<Bytes> some, all;
  ASSERT_TRUE(pair.far.Receive(&some).ok());
  ASSERT_EQ(some.size(), 2u);
  pair.far.PutBack({some[1]});
  MessageStream moved = std::move(pair.far);
  pair.near.Queue({3});
  pair.near.EndSending();
  EXPECT_EQ(moved.Receive(&all).code(), Code::kPeerLost);
  EXPECT_EQ(all, std::vector<Bytes>({{2}, {3}}));
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
