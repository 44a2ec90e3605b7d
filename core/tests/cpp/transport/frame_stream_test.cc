// Messages over a socket pair whose buffers are so small that every message is sent and received in pieces.
#include "transport/frame_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "support/transports.h"
#include "transport/both_lanes.h"

namespace farandole::tests {
namespace {

using Payload = std::vector<std::byte>;

Payload PayloadOf(size_t number, size_t size_bytes) {
  const std::vector<uint8_t> bytes = BytesOfMessage(number, size_bytes);
  Payload payload(size_bytes);
  std::transform(bytes.begin(), bytes.end(), payload.begin(), [](uint8_t each) { return std::byte{each}; });
  return payload;
}

// The tag's operation is the message's number, and `channel` says what the receiver does with it.
enum Fate : uint32_t { kTake, kDrop, kWait, kRefuse };
FrameHeader HeaderOf(uint64_t number, size_t size_bytes, Fate fate = kTake, FrameKind kind = FrameKind::kData) {
  MessageTag tag;
  tag.operation = number;
  tag.channel = fate;
  return {kind, 0, size_bytes, 0, tag};
}

// Offers memory before it knows the message, sometimes of a size that is too small or too large. A message with the
// fate kWait waits a few times.
class RandomFrameSink {
 public:
  explicit RandomFrameSink(uint32_t seed, bool expects = true) : random_(seed), expects_(expects) {}

  iovec Expected() {
    if (!expects_ || random_() % 3 == 0) return {};
    if (room_.empty()) room_.resize(size_t{1} << (random_() % 22));
    return {room_.data(), room_.size()};
  }
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) {
    ++asked;
    if (header.tag.channel == kRefuse) return {Code::kMismatch, "not this"};
    *waits = header.tag.channel == kWait && random_() % 4 != 0;
    if (*waits || header.tag.channel == kDrop || !header.has_payload()) return Status::Ok();
    const size_t size_bytes = header.size_bytes;
    if (size_bytes <= room_.size() && random_() % 4 != 0) {
      into_ = std::exchange(room_, {});  // its memory stays where it is
      ++direct;
    } else {
      into_.assign(size_bytes, std::byte{0});
    }
    *to = into_.data();
    return Status::Ok();
  }
  Status OnMessage(const FrameHeader& header) {
    numbers.push_back(header.tag.operation);
    if (header.tag.channel == kDrop || !header.has_payload()) return Status::Ok();
    into_.resize(header.size_bytes);
    payloads.push_back(std::exchange(into_, {}));
    return Status::Ok();
  }

  size_t asked = 0, direct = 0;
  std::vector<uint64_t> numbers;
  std::vector<Payload> payloads;

 private:
  std::mt19937 random_;
  const bool expects_;
  Payload room_, into_;
};

class TestStream final : public FrameStream {
 public:
  using FrameStream::FrameStream;
  RandomFrameSink* sink = nullptr;

 private:
  iovec Expected() override { return sink->Expected(); }
  Status OnHeader(const FrameHeader& header, std::byte** to, bool* waits) override {
    return sink->OnHeader(header, to, waits);
  }
  Status OnMessage(const FrameHeader& header) override { return sink->OnMessage(header); }
};

struct FramePair {
  explicit FramePair(bool reads_ahead = true) {
    auto [first, second] = UnixPair();
    raw = second.get();
    const int small = 4096;
    setsockopt(first.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(second.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    near = std::make_unique<TestStream>(std::move(first), "rank 1", reads_ahead);
    far = std::make_unique<TestStream>(std::move(second), "rank 0", reads_ahead);
  }

  Status Receive(RandomFrameSink* sink) {
    bool moved = false;
    far->sink = sink;
    return far->Receive(&moved);
  }
  // Until everything that is queued has been received, or an error.
  Status Move(RandomFrameSink* sink) {
    far->sink = sink;
    for (bool moved = true; moved || far->waits();) {
      moved = false;
      FRD_RETURN_IF_ERROR(near->Flush(&sent, &moved));
      FRD_RETURN_IF_ERROR(far->Receive(&moved));
    }
    return Status::Ok();
  }

  std::unique_ptr<TestStream> near, far;
  int raw = -1;
  std::vector<uint64_t> SentContexts() const {
    std::vector<uint64_t> contexts;
    for (const auto& each : sent) contexts.push_back(each.context);
    return contexts;
  }

  std::vector<Transport::Completion> sent;
};

struct SentFrames {
  std::vector<Payload> all;       // of queued messages; they stay where they are
  std::vector<Payload> expected;  // of those that the receiver takes
  std::vector<uint64_t> numbers;
};

// Queues messages of all sizes and fates, some behind others that are not sent yet.
void SendAnything(FramePair* pair, RandomFrameSink* sink, uint32_t seed, bool may_wait, SentFrames* sent) {
  std::mt19937 random(seed);
  for (uint64_t i = 0; i < 60; ++i) {
    const size_t size_bytes = 1 + random() % (size_t{1} << (random() % 22));
    const Fate fate = random() % 5 == 0 ? kDrop : may_wait && random() % 3 == 0 ? kWait : kTake;
    const bool is_short = random() % 6 == 0;  // a header alone
    sent->numbers.push_back(i);
    sent->all.push_back(PayloadOf(i, size_bytes));
    const FrameHeader header = HeaderOf(i, size_bytes, fate, is_short ? FrameKind::kAnnounced : FrameKind::kData);
    pair->near->Queue(header, sent->all.back().data(), i);
    if (!is_short && fate != kDrop) sent->expected.push_back(sent->all.back());
    if (random() % 3 != 0) continue;
    ASSERT_TRUE(pair->Move(sink).ok());
  }
  ASSERT_TRUE(pair->Move(sink).ok());
}

TEST(FrameStream, MessagesOfAnySizeComeInOrderAndComplete) {
  size_t direct = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    FramePair pair;
    RandomFrameSink sink(seed);
    SentFrames sent;
    SendAnything(&pair, &sink, seed, /*may_wait=*/false, &sent);
    EXPECT_TRUE(pair.near->flushed());
    EXPECT_EQ(pair.SentContexts(), sent.numbers);
    EXPECT_EQ(sink.numbers, sent.numbers);
    EXPECT_TRUE(sink.payloads == sent.expected) << "seed " << seed;
    direct += sink.direct;
  }
  EXPECT_GT(direct, 0u) << "no payload came directly into expected memory";
}

TEST(FrameStream, AMessageThatWaitsIsAskedAboutAgainAndLosesNothing) {
  size_t asked = 0, messages = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    FramePair pair(/*reads_ahead=*/false);
    RandomFrameSink sink(seed, /*expects=*/false);
    SentFrames sent;
    SendAnything(&pair, &sink, seed, /*may_wait=*/true, &sent);
    EXPECT_EQ(sink.numbers, sent.numbers);
    EXPECT_TRUE(sink.payloads == sent.expected) << "seed " << seed;
    asked += sink.asked;
    messages += sent.numbers.size();
  }
  EXPECT_GT(asked, messages) << "no message waited";
}

TEST(FrameStream, TheMemoryOfADetachedMessageIsNotReadAnyMore) {
  constexpr size_t kBytes = 1 << 20;
  for (int flushes = 0; flushes < 3; ++flushes) {
    FramePair pair;
    RandomFrameSink sink(1);
    auto detached = std::make_unique<Payload>(PayloadOf(1, kBytes));
    const Payload kept = PayloadOf(2, kBytes);
    pair.near->Queue(HeaderOf(1, kBytes), detached->data(), 1);
    pair.near->Queue(HeaderOf(2, kBytes), kept.data(), 2);
    bool moved = false;
    for (int i = 0; i < flushes; ++i) ASSERT_TRUE(pair.near->Flush(&pair.sent, &moved).ok());
    for (int i = 0; i < 2; ++i) pair.near->Detach(HeaderOf(1, kBytes).tag);  // twice is no harm
    std::fill(detached->begin(), detached->end(), std::byte{0xcd});
    detached.reset();
    ASSERT_TRUE(pair.Move(&sink).ok());
    EXPECT_EQ(pair.SentContexts(), std::vector<uint64_t>{2}) << "a detached message has no context";
    EXPECT_TRUE(sink.payloads == std::vector<Payload>({PayloadOf(1, kBytes), kept}));
  }
}

TEST(FrameStream, ADroppedQueueReturnsItsContextsAndSendsNothing) {
  FramePair pair;
  RandomFrameSink sink(1);
  const Payload data = PayloadOf(0, 100);
  pair.near->Queue(HeaderOf(1, 100), data.data(), 5);
  pair.near->Queue(HeaderOf(2, 100), data.data(), FrameStream::kNoContext);
  pair.near->Queue(HeaderOf(3, 100), data.data(), 6);
  EXPECT_EQ(pair.near->DropQueue(), (std::vector<uint64_t>{5, 6}));
  EXPECT_TRUE(pair.near->flushed());
  pair.near->Queue(HeaderOf(4, 100), data.data(), 7);
  EXPECT_TRUE(pair.near->flushed()) << "later messages are dropped, too";
  ASSERT_TRUE(pair.Move(&sink).ok());
  EXPECT_TRUE(sink.numbers.empty());
}

TEST(FrameStream, TheEndOfTheStreamComesAfterAllDataAndNamesThePeer) {
  FramePair pair;
  RandomFrameSink sink(1);
  const Payload data = PayloadOf(0, 3000);
  for (uint64_t i = 0; i < 2; ++i) pair.near->Queue(HeaderOf(i, data.size()), data.data(), i);
  bool moved = false;
  while (!pair.near->flushed()) ASSERT_TRUE(pair.near->Flush(&pair.sent, &moved).ok());
  pair.near->Close();
  EXPECT_FALSE(pair.near->open());
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) status = pair.Receive(&sink);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
  EXPECT_EQ(sink.payloads.size(), 2u);
}

TEST(FrameStream, SendingToAClosedPeerIsPeerLost) {
  FramePair pair;
  pair.far->Close();
  pair.near->Queue(HeaderOf(1, 1), "x", 1);
  bool moved = false;
  EXPECT_EQ(pair.near->Flush(&pair.sent, &moved).code(), Code::kPeerLost);
  EXPECT_TRUE(pair.sent.empty());
}

TEST(FrameStream, AnErrorOfTheSinkIsReturned) {
  FramePair pair;
  RandomFrameSink sink(1);
  pair.near->Queue(HeaderOf(1, 3, kRefuse), "abc", 1);
  const Status status = pair.Move(&sink);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(status.message(), "not this");
  EXPECT_TRUE(sink.numbers.empty());
}

Status StatusOfHeader(const FrameHeader& header) {
  FramePair pair;
  RandomFrameSink sink(1);
  EXPECT_EQ(send(pair.near->descriptor(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  const Status status = pair.Receive(&sink);
  EXPECT_EQ(sink.asked, status.ok() ? 1u : 0u) << "the sink sees readable headers only";
  return status;
}

TEST(FrameStream, AHeaderThatIsNotReadableIsAnError) {
  const FrameHeader valid = HeaderOf(1, 8);
  ASSERT_TRUE(StatusOfHeader(valid).ok());
  std::vector<FrameHeader> unreadable(8, valid);
  unreadable[0].kind = FrameKind{};
  unreadable[1].kind = static_cast<FrameKind>(static_cast<uint32_t>(FrameKind::kControl) + 1);
  unreadable[2].kind = static_cast<FrameKind>(~0u);
  for (size_t i = 0; i < 2; ++i) unreadable[3 + i].zero[i] = 1u << (15 * i);
  unreadable[5].tag.lane = static_cast<Lane>(2);
  unreadable[6].size_bytes = 0;  // a payload that is empty
  unreadable[7].size_bytes = (uint64_t{1} << 40) + 1;
  for (size_t i = 0; i < unreadable.size(); ++i) {
    const Status status = StatusOfHeader(unreadable[i]);
    EXPECT_FALSE(status.ok()) << i;
    EXPECT_NE(status.code(), Code::kPeerLost) << i << ": the peer is there";
  }
  for (FrameKind kind : {FrameKind::kAnnounced, FrameKind::kGrant, FrameKind::kCredit, FrameKind::kGoodbye})
    EXPECT_TRUE(StatusOfHeader(HeaderOf(1, 0, kTake, kind)).ok()) << "only a payload needs a size";
}

}  // namespace
}  // namespace farandole::tests
