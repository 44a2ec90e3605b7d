// Heads and data over a socket pair whose other end reads pieces of any size.
#include "transport/tcp/put_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

namespace farandole {
namespace {

// The head's first four bytes are the size of the data; the fifth says whether they are wanted.
PutHead HeadOf(uint32_t size_bytes, bool wanted = true) {
  PutHead head{};
  std::memcpy(head.data(), &size_bytes, sizeof size_bytes);
  head[4] = wanted;
  return head;
}

constexpr size_t kSizes[] = {1, 100, 5000, 70'000, 600'000};

// Expects one of these sizes next, often the wrong one.
class Taker final : public PutSink {
 public:
  Slice Expected(int) override {
    if (room_.empty() && random_() % 3 != 0) room_.resize(kSizes[random_() % std::size(kSizes)]);
    return {room_.data(), room_.size()};
  }
  Status OnHead(int, const PutHead& head, std::byte** to, size_t* size_bytes) override {
    uint32_t size = 0;
    std::memcpy(&size, head.data(), sizeof size);
    if (head[5] != 0) return {Code::kMismatch, "not this"};
    *size_bytes = size;
    if (head[4] == 0 || size == 0) return Status::Ok();
    size == room_.size() ? taken.push_back(std::exchange(room_, {})) : taken.emplace_back().resize(size);
    *to = taken.back().data();
    return Status::Ok();
  }
  void OnData(int, size_t size_bytes) override { data_bytes += size_bytes; }
  void OnEnd(int, const Status&) override {}

  std::vector<std::vector<std::byte>> taken;
  size_t data_bytes = 0;

 private:
  std::vector<std::byte> room_;
  std::mt19937 random_{7};
};

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    near = PutStream(Descriptor(ends[0]), 1);
    far = PutStream(Descriptor(ends[1]), 0);
  }
  void Move() {
    for (bool moved = true; moved;) {
      moved = false;
      EXPECT_TRUE(near.Flush(&moved).ok());
      EXPECT_TRUE(far.Receive(&taker, &moved).ok());
    }
  }
  PutStream near, far;
  Taker taker;
};

TEST(PutStreamTest, DataOfAnySizeComeInOrder) {
  Pair pair;
  std::mt19937 random(3);
  std::vector<std::vector<std::byte>> sent;
  for (int i = 0; i < 200; ++i) {
    const bool wanted = random() % 4 != 0;
    std::vector<std::byte> data(random() % 2 == 0   ? kSizes[random() % std::size(kSizes)]
                                : random() % 3 == 0 ? random() % 700'000
                                                    : random() % 9'000);
    for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<std::byte>(k * 7 + static_cast<size_t>(i));
    const PutHead head = HeadOf(static_cast<uint32_t>(data.size()), wanted);
    pair.near.Queue(head.data(), head.size());
    sent.push_back(std::move(data));  // stays where it is
    random() % 2 == 0 ? pair.near.Queue(sent.back().data(), sent.back().size())
                      : pair.near.QueueReference(sent.back().data(), sent.back().size());
    if (random() % 3 == 0) pair.Move();
    if (!wanted || sent.back().empty()) {
      pair.Move();
      sent.pop_back();
    }
  }
  pair.Move();
  EXPECT_TRUE(pair.near.flushed());
  EXPECT_EQ(pair.taker.taken, sent);
}

TEST(PutStreamTest, DetachedMemoryIsNotReadAnyMore) {
  Pair pair;
  std::vector<std::byte> data(1 << 20, std::byte{1});
  const PutHead head = HeadOf(1 << 20);
  pair.near.Queue(head.data(), head.size());
  pair.near.QueueReference(data.data(), data.size());
  bool moved = false;
  EXPECT_TRUE(pair.near.Flush(&moved).ok());
  EXPECT_FALSE(pair.near.flushed());
  pair.near.Detach();
  std::fill(data.begin(), data.end(), std::byte{2});
  pair.Move();
  EXPECT_EQ(pair.taker.taken.at(0), std::vector<std::byte>(1 << 20, std::byte{1}));
}

TEST(PutStreamTest, DroppedDataCountAsSent) {
  Pair pair;
  pair.near.Queue("words", 5);
  pair.near.Drop();
  EXPECT_TRUE(pair.near.flushed());
  pair.near.Queue("more", 4);
  EXPECT_TRUE(pair.near.flushed());
  EXPECT_EQ(pair.near.sent_bytes(), 9u);
  pair.Move();
  EXPECT_TRUE(pair.taker.taken.empty());
}

TEST(PutStreamTest, TheEndOfTheStreamComesAfterAllData) {
  Pair pair;
  const PutHead head = HeadOf(3);
  pair.near.Queue(head.data(), head.size());
  pair.near.Queue("abc", 3);
  bool moved = false;
  EXPECT_TRUE(pair.near.Flush(&moved).ok());
  pair.near.Close();
  EXPECT_FALSE(pair.near.open());
  Status status;
  for (int i = 0; i < 3 && status.ok(); ++i) status = pair.far.Receive(&pair.taker, &moved);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(pair.taker.data_bytes, 3u);
}

TEST(PutStreamTest, AnErrorOfTheReceiverIsReturned) {
  Pair pair;
  PutHead head = HeadOf(3);
  head[5] = 1;
  pair.near.Queue(head.data(), head.size());
  bool moved = false;
  EXPECT_TRUE(pair.near.Flush(&moved).ok());
  EXPECT_EQ(pair.far.Receive(&pair.taker, &moved).code(), Code::kMismatch);
}

}  // namespace
}  // namespace farandole
